package lead

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
)

// otherFactor is how many times more Release, Cancel, Close and internal commands may wait than
// Acquire, Open and Revoke: commands that free locks are not refused because of commands that ask
// for them.
const otherFactor = 8

// maxQueueBytes bounds the same commands by size: 8,192 of 4 KiB. Few are that large.
const maxQueueBytes = 32 << 20

// A pending command waits for its batch, and then for its batch to be applied.
type pending struct {
	command command.Command
	size    int
	ends    int  // what it ends costs, as sessionWeight counts it; of a CloseSession
	limited bool // counts against QueueCommands
	counted bool // in the binding of its session

	// from and what follows say who is to be answered. from is nil for the leader's own commands.
	from    *stream
	tag     uint64
	session command.SessionID
	since   Time           // Request.Received
	follow  bool           // Acquire.Follow
	attach  bool           // Open.Attach
	address string         // of the client of an Open
	group   *revocation    // one of several commands of a Revoke
	secret  command.Secret // Open.Secret, of which the command may have only the hash
	level   uint32         // of a SetLimits: the feature level before
}

// A revocation is a Revoke of all holders of a name: one command each, one answer for all.
type revocation struct {
	left  int
	count uint32
}

// A batch is one entry of this leader on its way through the log.
type batch struct {
	number   uint64 // from 1 in each leadership
	data     []byte
	pendings []*pending // of the last commands of the entry
	own      int        // number of commands before them, which the leader made for the machine

	expire        []command.SessionID // what the entry is meant to end
	waits, delays []command.ClaimID
	// leases and closing are what the entry is meant to record, renewed what it takes back.
	leases, renewed []command.SessionID
	closing         []command.ClaimID
}

// queue has what waits to be proposed and what is proposed and not yet applied.
type queue struct {
	batches uint64 // closed so far
	waiting []*pending
	bytes   int
	since   Time     // when the oldest of waiting arrived
	limited int      // number of those in waiting
	next    *batch   // closed, but not accepted by the log so far
	flying  []*batch // proposed, oldest first
}

// each visits all commands waiting or in flight, oldest first, and says which ones were proposed.
func (q *queue) each(visit func(p *pending, proposed bool)) {
	for _, b := range q.flying {
		for _, p := range b.pendings {
			visit(p, true)
		}
	}
	if q.next != nil {
		for _, p := range q.next.pendings {
			visit(p, false)
		}
	}
	for _, p := range q.waiting {
		visit(p, false)
	}
}

// room returns how many more commands that are not limited can be admitted.
func (q *queue) room(bound int) int { return bound*otherFactor - (len(q.waiting) - q.limited) }

// admit adds a command. It returns false when too many of its kind are waiting.
func (q *queue) admit(p *pending, bound int, now Time) bool {
	if p.limited {
		if q.limited >= bound || q.bytes >= maxQueueBytes {
			return false
		}
		q.limited++
	} else if q.room(bound) < 1 {
		return false
	}
	if len(q.waiting) == 0 {
		q.since = now
	}
	p.size = command.EncodedSize(p.command)
	q.bytes += p.size
	q.waiting = append(q.waiting, p)
	return true
}

// take removes the commands of the next batch: the first in line, within the bounds, at least one.
func (q *queue) take(commands, bytes int, now Time) []*pending {
	n, ends := 0, 0
	for n < len(q.waiting) && n < commands {
		size := q.waiting[n].size
		ends += q.waiting[n].ends
		if n > 0 && (size > bytes || ends > maxEnd) {
			break
		}
		bytes -= size
		q.bytes -= size
		if q.waiting[n].limited {
			q.limited--
		}
		n++
	}
	taken := q.waiting[:n:n]
	q.waiting, q.since = q.waiting[n:], now
	if len(q.waiting) == 0 {
		q.waiting = nil // release the array
	}
	return taken
}

// rises reports whether a command that changes the limits is waiting or in flight.
func (q *queue) rises() (found bool) {
	q.each(func(p *pending, _ bool) {
		_, is := p.command.(command.SetLimits)
		found = found || is
	})
	return found
}

// landed removes the batch of an applied entry of this leadership from those in flight.
func (q *queue) landed(number uint64) *batch {
	for i, b := range q.flying {
		if b.number == number {
			q.flying = append(q.flying[:i:i], q.flying[i+1:]...)
			return b
		}
	}
	return nil
}

// nextBatch returns when a batch may be closed next, if nothing is applied before.
func (q *queue) nextBatch(c *Config) Time {
	switch {
	case q.next != nil, len(q.waiting) == 0, len(q.flying) >= c.InFlight:
		return never // the next tick or the next applied entry is soon enough
	case len(q.flying) == 0:
		return 0
	}
	return q.since + Time(c.BatchAge)
}

// closes reports whether it is time to close a batch: there is something to propose and nothing in
// flight, or there is room for another entry and the waiting commands are many, large or old.
func (l *Lead) closes() bool {
	q := &l.queue
	switch {
	case len(q.flying) >= l.cfg.InFlight:
		return false
	case len(q.flying) == 0:
		return len(q.waiting) > 0 || l.hasDuties()
	default:
		return len(q.waiting) >= l.cfg.BatchCommands || q.bytes >= l.cfg.BatchBytes ||
			len(q.waiting) > 0 && l.now >= q.since+Time(l.cfg.BatchAge)
	}
}

// propose closes batches and offers them to the log. If one is not accepted, because a leadership
// transfer is in progress or too much is uncommitted, it stays closed and is offered again next
// turn.
func (l *Lead) propose() {
	q := &l.queue
	for {
		if q.next == nil {
			if !l.closes() {
				return
			}
			q.next = l.closeBatch()
		}
		if len(q.flying) >= l.cfg.InFlight {
			return
		}
		if err := l.group.Propose(q.next.data); err != nil {
			l.log.Debug("proposal not accepted", "batch", q.next.number, "err", err)
			return
		}
		q.flying = append(q.flying, q.next)
		q.next = nil
	}
}

func (l *Lead) closeBatch() *batch {
	b := &batch{number: l.NextBatch()}
	e := command.Entry{Header: command.Header{Proposer: l.cfg.ID, Batch: b.number, Wall: l.wall}}
	e.Commands = l.duties(b)
	b.own = len(e.Commands)
	b.pendings = l.queue.take(l.cfg.BatchCommands, l.cfg.BatchBytes, l.now)
	for _, p := range b.pendings {
		e.Commands = append(e.Commands, p.command)
	}
	if err := command.CheckLevels(l.machine.Limits().FeatureLevel, e.Commands); err != nil {
		panic(fmt.Sprintf("lead: batch %d: %v", b.number, err))
	}
	b.data = command.AppendEntry(nil, &e)
	return b
}

// NextBatch takes the number of the next entry, for one that the group proposes itself.
func (l *Lead) NextBatch() uint64 {
	l.queue.batches++
	return l.queue.batches
}
