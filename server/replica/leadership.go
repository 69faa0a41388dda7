package replica

import (
	"maps"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep/server/expiry"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A leadership is what a replica knows only while it leads, in one term. Nothing in it outlives the
// term: a deposed leader starts its next one from scratch.
type leadership struct {
	term    uint64 // zero: this replica does not lead
	serving bool   // an entry of this term is applied

	views   map[uint64]*peerView
	rounds  rounds
	queue   queue
	streams map[StreamID]*stream
	// sessions has those that a stream or a follower is bound to, or that have commands in flight.
	sessions map[machine.SessionID]*binding
	origins  origins
	// parked has the requests that arrived after an Attach that is waiting for its round.
	parked      map[parkKey][]Request
	parkedCount int // number of requests in it

	clock       expiry.Clock
	leases      expiry.Deadlines[machine.SessionID]
	waits       expiry.Deadlines[machine.ClaimID]
	delays      expiry.Deadlines[machine.ClaimID]
	checkpoints checkpoints

	expiring  ending[machine.SessionID] // lease over
	waitOver  ending[machine.ClaimID]
	delayOver ending[machine.ClaimID]
	nextCheck uint64 // applied index from which the next hash is compared
	checkAt   Time   // when it is compared at the latest
	founding  founding

	recovering bool          // nothing is granted yet after a restore
	recovered  time.Duration // on clock: when the wait after a restore is over
	endLogged  bool          // EndRecovery is in flight
}

func newLeadership(term uint64) leadership {
	return leadership{
		term:     term,
		views:    make(map[uint64]*peerView),
		streams:  make(map[StreamID]*stream),
		sessions: make(map[machine.SessionID]*binding),
		parked:   make(map[parkKey][]Request),
		origins:  newOrigins(),
	}
}

// maxStep is how much time the healthy clock credits in one turn: two periods of the loop.
func (c *Config) maxStep() time.Duration { return 2 * c.TickEvery }

// promote starts to serve: all entries of earlier terms are applied. Nobody knows when the last
// leader heard from a client, so every lease, wait and delay starts over unless a checkpoint
// recorded its end.
func (r *Replica) promote() {
	l := &r.lead
	l.serving = true
	r.restInZone()
	r.noteZones()
	l.clock = expiry.NewClock(time.Duration(r.now), r.cfg.maxStep())
	l.checkpoints.base = r.machine.LeaseClock()
	for _, t := range r.machine.Timers() {
		r.resume(t)
	}
	r.startRecovery()
	l.rounds.prompt = true
	r.members.unlogged = true
	// At once: a replica that has diverged must not take part in what is served now.
	l.nextCheck = r.applied
	if r.young() {
		r.noFloor = "the first entries of the cluster have not been logged yet"
	}
	r.log.Info("ready to serve", "term", l.term, "index", r.applied, "sessions", l.leases.Len())
}

// resume starts the timers that the last leader had. A lease or a delay whose end is recorded has
// the rest of its time left; when any other would have ended, nobody knows.
func (r *Replica) resume(t machine.Timer) {
	l := &r.lead
	span := millis(t.Span)
	switch {
	case t.Kind == machine.SessionStarted && t.Checkpointed:
		l.leases.Set(t.Claim.Session, span+r.cfg.Grace)
	case t.Kind == machine.SessionStarted:
		// Jittered, so that sessions of dead clients don't all end in one burst.
		l.leases.Set(t.Claim.Session, span+r.cfg.Grace+r.rng.jitter(span/4))
		r.awaitReturn(t.Claim.Session, span)
	case t.Checkpointed:
		l.delays.Set(t.Claim, span+r.cfg.Grace)
	default:
		r.timer(t)
	}
}

// depose ends the leadership. The successor may still commit what was proposed, so every waiting
// request is refused with NotLeader: its client asks again there.
func (r *Replica) depose() {
	l := &r.lead
	r.log.Info("lost leadership", "term", l.term)
	r.noFloor = "" // unknown here: it depends on the next leader's clock
	if c := r.members.change; c != nil {
		r.reply(c.asked.Stream, c.asked.Tag, c.asked.Session, Refused{Reason: NotLeader, Uncertain: true})
	}
	r.members.change, r.members.heard = nil, nil
	l.queue.each(func(p *pending, proposed bool) { r.refusePending(p, NotLeader, proposed) })
	for _, h := range l.rounds.all() {
		r.refuse(&h.Request, NotLeader)
	}
	for _, q := range l.checkpoints.all() {
		r.refuse(&q, NotLeader)
	}
	for _, key := range sortedParkKeys(l.parked) {
		for _, q := range l.parked[key] {
			r.refuse(&q, NotLeader)
		}
	}
	if mutantForwarded {
		r.lead = leadership{streams: l.streams, sessions: l.sessions}
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.streams)) {
		r.dismiss(l.streams[id])
	}
	r.lead = leadership{}
}

// dismiss tells the clients of a stream that nothing more comes on it from here.
func (r *Replica) dismiss(s *stream) {
	if len(s.sessions) == 0 && len(s.follows) > 0 {
		r.tell(s, s.follows[0].Session, Refused{Reason: NotLeader})
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.sessions), compareIDs) {
		r.tell(s, id, Refused{Reason: NotLeader})
	}
}

// leadOn is a leader's part of a turn: it answers what rounds confirmed, ends what ran out, starts
// the next round and proposes the next entry.
func (r *Replica) leadOn() {
	if !r.lead.serving {
		if mutantForwarded {
			r.leadForwarded()
		}
		return
	}
	r.serveConfirmed()
	r.collectDue()
	r.startRound()
	r.propose()
	r.drain()
	r.serveConfirmed() // in a cluster of one
	r.serveReads()
}

// healthy reports whether quorum rounds succeed: one that was started within the last two idle
// periods is confirmed.
func (r *Replica) healthy() bool {
	l := &r.lead
	return l.rounds.confirmed && time.Duration(r.now-l.rounds.confirmedStart) <= 2*r.cfg.RoundIdle
}

// collectDue collects the deadlines that have passed. It looks no further than the oldest waiting
// keepalive.
func (r *Replica) collectDue() {
	l := &r.lead
	due := l.clock.Settle(time.Duration(r.oldestKeepAlive()))
	moveDue(&l.leases, &l.expiring, due)
	moveDue(&l.waits, &l.waitOver, due)
	moveDue(&l.delays, &l.delayOver, due)
	r.collectSilent(due)
	r.watchRecovery(due)
}

func (r *Replica) oldestKeepAlive() Time {
	l := &r.lead
	oldest := min(r.now, l.rounds.oldest())
	if r.backlog != 0 {
		oldest = min(oldest, r.backlog)
	}
	return oldest
}

func moveDue[K comparable](from *expiry.Deadlines[K], to *ending[K], due time.Duration) {
	for {
		key, ok := from.Next(due)
		if !ok {
			return
		}
		to.add(key)
	}
}

// timer starts or stops a timer for the machine.
func (r *Replica) timer(t machine.Timer) {
	l := &r.lead
	session, now, span := t.Claim.Session, l.clock.Now(), millis(t.Span)
	switch t.Kind {
	case machine.SessionStarted:
		l.leases.Set(session, now+span+r.cfg.Grace)
		r.watchLease(session, span)
	case machine.SessionEnded:
		l.leases.Drop(session)
		l.expiring.drop(session)
		r.leaseOver(session)
		_, leaving := r.machine.Leaving(session)
		l.origins.over(session, leaving)
		r.sessionOver(session)
	case machine.WaitStarted:
		l.waits.Set(t.Claim, now+span)
	case machine.WaitOver:
		l.waits.Drop(t.Claim)
		l.waitOver.drop(t.Claim)
	case machine.DelayStarted:
		l.delays.Set(t.Claim, now+span+r.cfg.Grace)
		r.watchDelay(t.Claim, span)
	case machine.DelayOver:
		l.delays.Drop(t.Claim)
		l.delayOver.drop(t.Claim)
		l.checkpoints.delayOver(t.Claim)
		if _, live := r.machine.Session(session); !live {
			r.sessionOver(session)
		}
		if _, leaving := r.machine.Leaving(session); !leaving {
			delete(l.origins.left, session)
		}
	}
}

func millis(m machine.Millis) time.Duration { return time.Duration(m) * time.Millisecond }
