package lead

import (
	"log/slog"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/expiry"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A Lead does for clients what a leader does. Between two leaderships it refuses what they ask.
// Only one goroutine may use it at a time.
type Lead struct {
	cfg     Config
	log     *slog.Logger
	group   Group
	machine *machine.Machine
	applied uint64
	rng     rng

	now  Time
	wall command.WallMillis
	out  *outbox

	leadership // zero unless this replica leads
}

// A leadership is what a Lead knows only while its replica leads, in one term. Nothing in it
// outlives the term: a deposed leader starts its next one from scratch.
type leadership struct {
	term    uint64 // zero: this replica does not lead
	serving bool   // an entry of this term is applied

	rounds  rounds
	queue   queue
	streams streams
	parking parking
	origins origins
	timers  timers

	nextCheck uint64 // applied index from which the next hash is compared
	checkAt   Time   // when it is compared at the latest
}

// New makes a Lead that does not lead yet. The error says that Rand cannot be read.
func New(cfg Config, group Group) (*Lead, error) {
	rng, err := newRNG(cfg.Rand)
	if err != nil {
		return nil, err
	}
	return &Lead{
		cfg: cfg, log: cfg.Logger, group: group, machine: cfg.Machine, applied: cfg.Applied, rng: rng, out: &outbox{},
	}, nil
}

// Installed replaces the lock table by that of a snapshot, which includes the entry at index. Only
// a replica that does not lead installs one.
func (l *Lead) Installed(m *machine.Machine, index uint64) { l.machine, l.applied = m, index }

// Begin begins a turn. now must not fall from turn to turn; wall is the wall clock, used only for
// display.
func (l *Lead) Begin(now Time, wall command.WallMillis) {
	l.now, l.wall = now, wall
	if l.serving {
		l.timers.clock.Advance(time.Duration(now), l.rounds.healthy(now, l.cfg.RoundIdle))
	}
}

// Start starts a leadership. Requests are served once an entry of its term is applied.
func (l *Lead) Start(term uint64) {
	l.leadership = leadership{term: term, streams: newStreams(l.out), origins: newOrigins()}
	l.log.Info("became leader", "term", term)
}

// Apply goes on after an applied entry. e and out are nil for an entry of Raft's own. It reports
// whether requests are served from now on.
func (l *Lead) Apply(index, term uint64, e *command.Entry, out *command.Output) (promoted bool) {
	l.applied = index
	if promoted = l.term == term && !l.serving; promoted {
		l.promote()
	}
	if e != nil && l.serving {
		l.deliver(term, e, out)
	}
	return promoted
}

// promote starts to serve: all entries of earlier terms are applied. Nobody knows when the last
// leader heard from a client, so every lease, wait and delay starts over unless a checkpoint
// recorded its end.
func (l *Lead) promote() {
	l.serving = true
	l.timers = timers{
		machine: l.machine, log: l.log, grace: l.cfg.Grace,
		clock: expiry.NewClock(time.Duration(l.now), l.cfg.MaxStep),
	}
	l.timers.checkpoints.base = l.machine.LeaseClock()
	for _, t := range l.machine.Timers() {
		l.timers.resume(t, &l.rng)
	}
	l.timers.startRecovery()
	l.rounds.prompt = true
	// At once: a replica that has diverged must not take part in what is served now.
	l.nextCheck = l.applied
	l.log.Info("ready to serve", "term", l.term, "index", l.applied, "sessions", l.timers.leases.Len())
}

// Raised goes on after an entry that raised the feature level from the one before.
func (l *Lead) Raised(before uint32) {
	if l.serving && before < command.LeaseLevel && l.machine.Limits().FeatureLevel >= command.LeaseLevel {
		l.timers.watchAll()
	}
}

// Depose ends the leadership. The successor may still commit what was proposed, so every waiting
// request is refused with NotLeader: its client asks again there.
func (l *Lead) Depose() {
	l.log.Info("lost leadership", "term", l.term)
	l.queue.each(func(p *pending, proposed bool) { l.out.refusePending(p, NotLeader, proposed) })
	for _, h := range l.rounds.all() {
		l.out.refuse(&h.Request, NotLeader)
	}
	for _, q := range l.timers.checkpoints.all() {
		l.out.refuse(&q, NotLeader)
	}
	for _, q := range l.parking.all() {
		l.out.refuse(&q, NotLeader)
	}
	if mutantForwarded {
		l.leadership = leadership{streams: l.streams}
		return
	}
	l.streams.dismiss()
	l.leadership = leadership{}
}

// Serve is the first part of a turn: it answers what rounds confirmed, ends what ran out, starts
// the next round and proposes the next entry. backlog is the receive time of the oldest request
// that has not been given to Request yet, or zero.
func (l *Lead) Serve(backlog Time) {
	if l.serving {
		l.serveConfirmed()
		l.timers.collect(l.oldestKeepAlive(backlog))
		l.startRound()
		l.propose()
	} else if mutantForwarded {
		l.serveConfirmed()
		l.startRound()
	}
}

// Finish is the last part of a turn, after the replica has carried out what Raft has ready: a group
// of one may have confirmed a round at once.
func (l *Lead) Finish() {
	if l.serving || mutantForwarded {
		l.serveConfirmed()
		l.serveReads()
	}
}

func (l *Lead) oldestKeepAlive(backlog Time) Time {
	oldest := min(l.now, l.rounds.oldest())
	if backlog != 0 {
		oldest = min(oldest, backlog)
	}
	return oldest
}

// timer starts or stops a timer for the machine, and forgets a session that has ended.
func (l *Lead) timer(t command.Timer) {
	l.timers.change(t)
	switch session := t.Claim.Session; t.Kind {
	case command.SessionEnded:
		l.serveWaiting(session)
		_, leaving := l.machine.Leaving(session)
		l.origins.over(session, leaving)
		l.streams.over(session, l.machine)
	case command.DelayOver:
		if _, live := l.machine.Session(session); !live {
			l.streams.over(session, l.machine)
		}
		if _, leaving := l.machine.Leaving(session); !leaving {
			l.origins.settled(session)
		}
	}
}

// Wake returns when the next turn is due if nothing arrives, at the latest by the given time.
func (l *Lead) Wake(latest Time) Time {
	switch {
	case !l.serving:
		return latest
	case !l.rounds.reads.empty():
		return l.now
	}
	return min(latest, l.nextRound(), l.queue.nextBatch(&l.cfg))
}

// Reply adds the answer to a request that the group handles.
func (l *Lead) Reply(q *Request, a Answer) { l.out.answer(q, a) }

// Replies takes the replies that have not been taken yet; those of one stream go out in this order.
func (l *Lead) Replies() []Reply {
	replies := l.out.replies
	l.out.replies = nil
	return replies
}

// Term returns the term of the leadership, or zero while there is none.
func (l *Lead) Term() uint64 { return l.term }

// Serving reports whether requests are served.
func (l *Lead) Serving() bool { return l.serving }

// Stats are sizes of a Lead for status and tests; all zero while it does not lead.
type Stats struct {
	Queued   int // commands waiting for a batch
	InFlight int // entries that are proposed and not applied
	Held     int // requests waiting for a quorum round or, as reads, for their turn
	Renewing int // keepalives waiting for the log to take back an end of their lease
	Expiring int // sessions whose end is proposed
	Attached int // sessions bound to a stream

	Rounds    uint64        // quorum rounds started
	Open      int           // of them, those that wait for a quorum
	Confirmed Time          // when the newest confirmed round was started
	Clock     time.Duration // the healthy clock
}

// Stats returns the sizes.
func (l *Lead) Stats() Stats {
	return Stats{
		Queued: len(l.queue.waiting), InFlight: len(l.queue.flying),
		Held: l.rounds.held, Renewing: l.timers.checkpoints.held,
		Expiring: l.timers.expiring.len(), Attached: l.streams.count(),
		Rounds: l.rounds.number, Open: len(l.rounds.open), Confirmed: l.rounds.confirmedStart,
		Clock: l.timers.clock.Now(),
	}
}
