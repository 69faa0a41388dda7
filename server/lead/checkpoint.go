package lead

import (
	"maps"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/expiry"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// Only the leader knows who renewed a lease. Its successor would have to give every session a full
// TTL, and would do so for a dead one after every change of leaders. So a leader records the ends
// of leases that have not been renewed for a while (command.CheckpointLeases), on a clock that
// continues from leader to leader.
//
// Why that is safe. Suppose a leader logs at time p that the lease of session S ends at E. E is no
// earlier than what any client can believe from a keepalive answered before p, because the leader's
// own deadline is not. That must remain true: no keepalive of S may be answered after p as long as
// a later leader can find that end in its state. So
//
//   - this leader answers no keepalive of S from p on until it has applied a RenewLeases for S,
//     which removes the end from the state (mustRenew);
//   - before it serves, a later leader has applied every entry of this term that any leader after
//     it will have, so it finds the end in its state and does the same;
//   - an earlier leader answers no keepalive that arrived after this one was elected (see
//     keepAlive), and what it answered before is covered by this leader's deadline of a full TTL,
//     or of what is left until an earlier end.
//
// The lease clock joins the healthy clocks of successive leaders, as far as they were logged. It is
// never faster than real time, so a pause, a time without a leader, and anything that a leader did
// not get to log only make leases longer.

const (
	// checkAfter is how long after its promotion a leader waits for sessions to come back before it
	// records the ends of their leases. Clients renew as soon as they have found the new leader.
	checkAfter = time.Second
	// checkpointEvery is how often the lease clock is logged while any end is recorded. Apart from
	// the time of one entry, at most this much of a leader's time is lost to its successor.
	checkpointEvery = 250 * time.Millisecond
	// maxCheckpoint bounds the sessions, and the delays, of one command. A session takes about 22
	// bytes.
	maxCheckpoint = 4_096
)

// checkpoints is what a leader is to record, has recorded, and takes back.
type checkpoints struct {
	// base is the lease clock of the machine at the promotion, when the healthy clock was zero.
	base   command.Millis
	logged time.Duration // healthy clock of the last checkpoint

	// returning, leases and delays hold when the end of each is to be recorded, unless it already
	// is. A session is in returning until it has renewed at this leader, and then in leases, where
	// a renewal does not move it: see collectSilent.
	returning expiry.Deadlines[command.SessionID]
	leases    expiry.Deadlines[command.SessionID]
	delays    expiry.Deadlines[command.ClaimID]
	// dueLeases and dueDelays are those being recorded now.
	dueLeases ending[command.SessionID]
	dueDelays ending[command.ClaimID]

	// renewals are the sessions whose RenewLeases is in flight, and keepAlives the requests waiting
	// for it.
	renewals   ending[command.SessionID]
	keepAlives map[command.SessionID][]Request
	held       int // number of waiting keepalives
}

// checkpointing reports whether the log may hold checkpoints.
func (t *timers) checkpointing() bool {
	return t.machine.Limits().FeatureLevel >= command.LeaseLevel && !mutantAnew
}

// silentAfter is how long a session may go without renewing before the end of its lease is
// recorded. Clients renew every TTL/3.
func silentAfter(ttl time.Duration) time.Duration { return ttl / 2 }

// awaitReturn schedules the end of a lease to be recorded if the session does not renew soon after
// the promotion.
func (t *timers) awaitReturn(id command.SessionID, ttl time.Duration) {
	if t.checkpointing() {
		t.checkpoints.returning.Set(id, min(checkAfter, silentAfter(ttl)))
	}
}

// watchLease schedules the end of a lease that has just begun to be recorded after a while, if the
// session does not renew it.
func (t *timers) watchLease(id command.SessionID, ttl time.Duration) {
	if t.checkpointing() {
		t.checkpoints.leases.Set(id, t.clock.Now()+silentAfter(ttl))
	}
}

// leaseRenewed handles a renewal. Usually there is nothing to do.
func (t *timers) leaseRenewed(id command.SessionID, ttl time.Duration) {
	c := &t.checkpoints
	if _, awaited := c.returning.At(id); awaited || c.dueLeases.has(id) {
		c.returning.Drop(id)
		c.dueLeases.drop(id)
		t.watchLease(id, ttl)
	}
}

// collectSilent finds the sessions that have been silent for too long, and the delays that are due
// to be recorded.
func (t *timers) collectSilent(due time.Duration) {
	c := &t.checkpoints
	moveDue(&c.returning, &c.dueLeases, due)
	moveDue(&c.delays, &c.dueDelays, due)
	for {
		id, ok := c.leases.Next(due)
		if !ok {
			return
		}
		s, live := t.machine.Session(id)
		end, timed := t.leases.At(id)
		if !live || !timed {
			continue // its end is in flight
		}
		ttl := millis(s.TTL)
		if silent := end - t.grace - ttl + silentAfter(ttl); silent > due {
			c.leases.Set(id, silent) // it has renewed
		} else {
			c.dueLeases.add(id)
		}
	}
}

// watchDelay schedules the end of a delay to be recorded after a while, if the delay is long.
func (t *timers) watchDelay(id command.ClaimID, span time.Duration) {
	if t.checkpointing() && span > checkAfter {
		t.checkpoints.delays.Set(id, t.clock.Now()+checkAfter)
	}
}

// mustRenew reports whether the end of the session's lease is recorded, or may be. Then no
// keepalive of the session is answered until the log takes that back.
func (t *timers) mustRenew(s *machine.Session) bool {
	c := &t.checkpoints
	return !mutantUnlogged && (s.Checkpointed || c.dueLeases.proposed(s.ID) || c.renewals.has(s.ID))
}

// holdForRenewal makes a keepalive wait for the RenewLeases of its session. It returns false when
// too many are waiting.
func (c *checkpoints) holdForRenewal(q *Request) bool {
	if c.held >= maxHeldKeepAlives {
		return false
	}
	if c.keepAlives == nil {
		c.keepAlives = make(map[command.SessionID][]Request)
	}
	c.held++
	c.keepAlives[q.Session] = append(c.keepAlives[q.Session], *q)
	c.renewals.add(q.Session)
	return true
}

// takeWaiting removes and returns the keepalives of a session whose RenewLeases is applied, or
// which is over. Their round has been confirmed already.
func (c *checkpoints) takeWaiting(id command.SessionID) []Request {
	c.renewals.drop(id)
	waiting := c.keepAlives[id]
	delete(c.keepAlives, id)
	c.held -= len(waiting)
	return waiting
}

// all returns the waiting keepalives, in the order of their sessions.
func (c *checkpoints) all() (waiting []Request) {
	for _, id := range slices.SortedFunc(maps.Keys(c.keepAlives), compareIDs) {
		waiting = append(waiting, c.keepAlives[id]...)
	}
	return waiting
}

// leaseOver forgets a session that has ended, except for its waiting keepalives.
func (c *checkpoints) leaseOver(id command.SessionID) {
	c.returning.Drop(id)
	c.leases.Drop(id)
	c.dueLeases.drop(id)
}

func (c *checkpoints) delayOver(id command.ClaimID) {
	c.delays.Drop(id)
	c.dueDelays.drop(id)
}

// wantsCheckpoint reports whether ends, or the lease clock, are to be logged.
func (t *timers) wantsCheckpoint() bool {
	c := &t.checkpoints
	if c.dueLeases.fresh() || c.dueDelays.fresh() {
		return true
	}
	timed := t.machine.Counts().Checkpointed > 0 || t.recovering && t.recovered > 0
	return timed && t.checkpointing() && t.clock.Now()-c.logged >= checkpointEvery
}

// checkpointCommands record what is due, and take back what was renewed.
func (t *timers) checkpointCommands(term uint64, b *batch) (commands []command.Command) {
	c := &t.checkpoints
	if t.wantsCheckpoint() {
		now := t.clock.Now()
		c.logged = now
		commands = append(commands, command.CheckpointLeases{
			Term: term, Clock: c.base + command.Millis(now.Milliseconds()), Wait: t.recoveryLeft(),
			Sessions: t.sessionEnds(b), Delays: t.delayEnds(b),
		})
	}
	one := func(command.SessionID) int { return 1 }
	if b.renewed = c.renewals.take(maxCheckpoint, one); len(b.renewed) > 0 {
		commands = append(commands, command.RenewLeases{Term: term, Sessions: b.renewed})
	}
	return commands
}

func (t *timers) sessionEnds(b *batch) (ends []command.SessionEnd) {
	c := &t.checkpoints
	b.leases = c.dueLeases.take(maxCheckpoint, func(command.SessionID) int { return 1 })
	for _, id := range b.leases {
		if at, ok := t.leases.At(id); ok {
			ends = append(ends, command.SessionEnd{Session: id, At: c.onLeaseClock(at - t.grace)})
		}
	}
	return ends
}

func (t *timers) delayEnds(b *batch) (ends []command.DelayEnd) {
	c := &t.checkpoints
	b.closing = c.dueDelays.take(maxCheckpoint, func(command.ClaimID) int { return 1 })
	for _, id := range b.closing {
		if at, ok := t.delays.At(id); ok {
			ends = append(ends, command.DelayEnd{Claim: id, At: c.onLeaseClock(at - t.grace)})
		}
	}
	return ends
}

// onLeaseClock converts a time of the healthy clock to the lease clock, rounded up: an end must not
// come early.
func (c *checkpoints) onLeaseClock(at time.Duration) command.Millis {
	return c.base + roundUp(at)
}

func roundUp(d time.Duration) command.Millis {
	return command.Millis(max(0, d+time.Millisecond-1).Milliseconds())
}

// finishCheckpoint continues after an entry with checkpoints of this leader has been applied.
func (t *timers) finishCheckpoint(b *batch) {
	for _, id := range b.leases {
		t.checkpoints.dueLeases.drop(id)
	}
	for _, id := range b.closing {
		t.checkpoints.dueDelays.drop(id)
	}
}

// renewed continues after a RenewLeases has been applied. The keepalive of the session may be gone
// along with its stream.
func (t *timers) renewed(id command.SessionID) {
	if s, live := t.machine.Session(id); live {
		t.watchLease(id, millis(s.TTL))
	}
}

// watchAll schedules recording the ends of leases and delays that began while the log could not
// hold them.
func (t *timers) watchAll() {
	for _, m := range t.machine.Timers() {
		switch m.Kind {
		case command.SessionStarted:
			t.watchLease(m.Claim.Session, millis(m.Span))
		case command.DelayStarted:
			t.watchDelay(m.Claim, millis(m.Span))
		}
	}
}
