package lead

import (
	"math"
	"time"

	"github.com/lockstep-dev/lockstep/server/machine"
)

const (
	// maxOpenRounds bounds the rounds that wait for a quorum. A leader that is cut off steps down
	// before it has started that many.
	maxOpenRounds = 16
	// maxHeldReads bounds the requests other than keepalives that wait for a round or for their
	// turn, by cost: 131,072 units take some 200 ms. One connection has at most half of it; see
	// share.
	maxHeldReads = 131_072
	// maxHeldKeepAlives bounds the held keepalives: one for each of twice as many sessions as a
	// cluster has.
	maxHeldKeepAlives = 400_000
)

// never is later than every time.
const never Time = math.MaxInt64

// A held request waits for a quorum round that is started after it arrived.
type held struct {
	Request
	cost int  // of a request other than a keepalive
	late bool // a keepalive of a session that is due: it waits for the end and holds nothing back
}

func (h *held) keepAlive() bool {
	_, ok := h.Body.(KeepAlive)
	return ok
}

// copied is how many holders and waiters are copied in the time of one unit of cost.
const copied = 4

// cost estimates, in microseconds, the longest time that serving a request takes, by how much there
// is to copy now.
func cost(b Body, m *machine.Machine) int {
	switch b := b.(type) {
	case ReadHistory:
		return 64 + b.Limit // the search reads filters; what it finds is decoded
	case ReadLocks:
		return 1 + b.Limit + min(b.Limit*machine.ListedHolders, machine.MaxListed)/copied
	case ReadSessions:
		return 256 + b.Limit // the claims that are counted come on top of the sessions
	case ReadLock:
		holders, waiters := m.Sizes(b.Name)
		return 1 + (min(holders, b.Holders)+min(waiters, b.Waiters))/copied
	case Revoke:
		holders, _ := m.Sizes(b.Name)
		return 1 + min(holders, maxHeldReads/4)
	default:
		return 1
	}
}

// A round asks a quorum whether this replica leads.
type round struct {
	number  uint64
	started Time
	items   []held
	oldest  Time   // receive time of its oldest keepalive
	index   uint64 // once confirmed: items are answered when it is applied
}

type rounds struct {
	number uint64 // of the last round started

	waiting       []held // for the next round
	waitingOldest Time   // valid while anything waits
	prompt        bool   // some of it should not wait for the usual interval

	open  []round // started, oldest first
	ready []round // confirmed, oldest first

	reads reads // of confirmed rounds, waiting for their turn

	held, heldKeepAlives int            // in all four
	work                 int            // the total cost of those that are not keepalives
	works                map[uint64]int // the same for each connection that has any

	lastStart      Time
	confirmed      bool // any
	confirmedStart Time // start of the newest confirmed round
}

// hold makes a request wait for the next round. It returns false when too many are waiting.
func (s *rounds) hold(h held, prompt bool) bool {
	if h.keepAlive() {
		if s.heldKeepAlives >= maxHeldKeepAlives {
			return false
		}
		s.heldKeepAlives++
	} else {
		if !s.share(h.From.Connection, h.cost) {
			return false
		}
		s.take(h.From.Connection, h.cost)
	}
	s.held++
	if n := len(s.open); mutantJoin && n > 0 && h.keepAlive() {
		s.open[n-1].items = append(s.open[n-1].items, h)
		return true
	}
	if len(s.waiting) == 0 {
		s.waitingOldest = never
	}
	if h.keepAlive() && !h.late {
		s.waitingOldest = min(s.waitingOldest, h.Received)
	}
	s.waiting = append(s.waiting, h)
	s.prompt = s.prompt || prompt
	return true
}

// share reports whether a connection may hold that much more: in total no more than what is free
// then. So a single connection has half of the room, two a third each, and there is always some
// left for another.
func (s *rounds) share(connection uint64, cost int) bool {
	return s.works[connection]+cost <= maxHeldReads-s.work
}

// take adds the cost of a request, or subtracts it again.
func (s *rounds) take(connection uint64, cost int) {
	if s.works == nil {
		s.works = make(map[uint64]int)
	}
	s.work += cost
	if s.works[connection] += cost; s.works[connection] == 0 {
		delete(s.works, connection)
	}
}

// release forgets requests that were held.
func (s *rounds) release(items []held) {
	s.held -= len(items)
	for i := range items {
		if items[i].keepAlive() {
			s.heldKeepAlives--
		} else {
			s.take(items[i].From.Connection, -items[i].cost)
		}
	}
}

// all returns the waiting requests, oldest first.
func (s *rounds) all() (items []held) {
	items = s.reads.all()
	for _, list := range [][]round{s.ready, s.open} {
		for _, rd := range list {
			items = append(items, rd.items...)
		}
	}
	return append(items, s.waiting...)
}

// oldest returns the receive time of the oldest waiting keepalive, or never if there is none.
func (s *rounds) oldest() Time {
	oldest := never
	for _, list := range [][]round{s.ready, s.open} {
		for _, rd := range list {
			oldest = min(oldest, rd.oldest)
		}
	}
	if len(s.waiting) > 0 {
		oldest = min(oldest, s.waitingOldest)
	}
	return oldest
}

// healthy reports whether rounds succeed: one that was started within the last two idle periods is
// confirmed.
func (s *rounds) healthy(now Time, idle time.Duration) bool {
	return s.confirmed && time.Duration(now-s.confirmedStart) <= 2*idle
}

// next returns when the next round is due: at once if something prompt waits and no other round is
// open; every RoundEvery for keepalives; every RoundIdle if idle ones are needed.
func (s *rounds) next(c *Config, now Time, idle bool) Time {
	switch {
	case len(s.open) >= maxOpenRounds:
		return never
	case s.prompt && len(s.open) == 0:
		return now
	case len(s.waiting) > 0 || s.prompt:
		return s.lastStart + Time(c.RoundEvery)
	case idle:
		return s.lastStart + Time(c.RoundIdle)
	default:
		return never
	}
}

// start opens the next round, with everything that waits for it.
func (s *rounds) start(now Time) (number uint64) {
	s.number++
	rd := round{number: s.number, started: now, items: s.waiting, oldest: never}
	if len(s.waiting) > 0 {
		rd.oldest = s.waitingOldest
	}
	s.waiting, s.prompt, s.lastStart = nil, false, now
	s.open = append(s.open, rd)
	return rd.number
}

// confirm moves the rounds up to number to those that are confirmed.
func (s *rounds) confirm(number, index uint64) {
	for len(s.open) > 0 && s.open[0].number <= number {
		rd := s.open[0]
		s.open = s.open[1:]
		rd.index = index
		s.ready = append(s.ready, rd)
		s.confirmed, s.confirmedStart = true, max(s.confirmedStart, rd.started)
	}
}

// nextRound returns when the next round is due. While there are sessions it is for the health of
// the clock.
func (l *Lead) nextRound() Time { return l.rounds.next(&l.cfg, l.now, l.timers.needsRounds()) }

func (l *Lead) startRound() {
	if l.now >= l.nextRound() {
		l.group.StartRound(l.rounds.start(l.now))
	}
}

// Confirm reports that a quorum confirmed a round that was started in this term, and those before
// it. What waits for them is answered once the entry at index is applied.
func (l *Lead) Confirm(number, index uint64) { l.rounds.confirm(number, index) }

// serveConfirmed answers the requests of confirmed rounds whose index has been applied. Reads take
// turns.
func (l *Lead) serveConfirmed() {
	s := &l.rounds
	for len(s.ready) > 0 && s.ready[0].index <= l.applied {
		rd := s.ready[0]
		s.ready = s.ready[1:]
		for _, h := range rd.items {
			if isRead(h.Body) {
				s.reads.add(h)
			} else {
				l.serveHeld(h)
			}
		}
	}
}

// serveReads answers confirmed reads for readsATurn. The others wait for the next turn, which is
// due at once.
func (l *Lead) serveReads() {
	s := &l.rounds
	for spent := time.Duration(0); spent < readsATurn && !s.reads.empty(); {
		h := s.reads.next()
		spent += l.cfg.timed(h.cost, func() { l.serveHeld(h) })
	}
}

// serveHeld answers a request whose round is confirmed.
func (l *Lead) serveHeld(h held) {
	l.rounds.release([]held{h})
	if l.streams.known(h.Stream) {
		l.serve(h.Request, confirmedRound)
	} else {
		l.parking.clear(h.parkKey()) // the stream is gone
	}
}
