package lead

import (
	"log/slog"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/expiry"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// timers are a leader's leases, waits and delays, on its healthy clock. What has run out stays in
// one of the endings until an applied entry has ended it.
type timers struct {
	machine *machine.Machine
	log     *slog.Logger
	grace   time.Duration

	clock       expiry.Clock
	leases      expiry.Deadlines[command.SessionID]
	waits       expiry.Deadlines[command.ClaimID]
	delays      expiry.Deadlines[command.ClaimID]
	checkpoints checkpoints

	expiring  ending[command.SessionID] // lease over
	waitOver  ending[command.ClaimID]
	delayOver ending[command.ClaimID]

	recovering bool          // nothing is granted yet after a restore
	recovered  time.Duration // on clock: when the wait after a restore is over; zero: it is
	endLogged  bool          // EndRecovery is in flight
}

// resume starts the timers that the last leader had. A lease or a delay whose end is recorded has
// the rest of its time left; when any other would have ended, nobody knows.
func (t *timers) resume(m command.Timer, rng *rng) {
	span := millis(m.Span)
	switch {
	case m.Kind == command.SessionStarted && m.Checkpointed:
		t.leases.Set(m.Claim.Session, span+t.grace)
	case m.Kind == command.SessionStarted:
		// Jittered, so that sessions of dead clients don't all end in one burst.
		t.leases.Set(m.Claim.Session, span+t.grace+rng.jitter(span/4))
		t.awaitReturn(m.Claim.Session, span)
	case m.Checkpointed:
		t.delays.Set(m.Claim, span+t.grace)
	default:
		t.change(m)
	}
}

// change starts or stops a timer for the machine.
func (t *timers) change(m command.Timer) {
	session, now, span := m.Claim.Session, t.clock.Now(), millis(m.Span)
	switch m.Kind {
	case command.SessionStarted:
		t.leases.Set(session, now+span+t.grace)
		t.watchLease(session, span)
	case command.SessionEnded:
		t.leases.Drop(session)
		t.expiring.drop(session)
		t.checkpoints.leaseOver(session)
	case command.WaitStarted:
		t.waits.Set(m.Claim, now+span)
	case command.WaitOver:
		t.waits.Drop(m.Claim)
		t.waitOver.drop(m.Claim)
	case command.DelayStarted:
		t.delays.Set(m.Claim, now+span+t.grace)
		t.watchDelay(m.Claim, span)
	case command.DelayOver:
		t.delays.Drop(m.Claim)
		t.delayOver.drop(m.Claim)
		t.checkpoints.delayOver(m.Claim)
	}
}

// renew gives a session its full time from now on.
func (t *timers) renew(s *machine.Session) {
	t.leases.Set(s.ID, t.clock.Now()+millis(s.TTL)+t.grace)
}

// left returns what is left of a lease, or zero when its end is in flight.
func (t *timers) left(id command.SessionID) command.Millis {
	at, ok := t.leases.At(id)
	if !ok {
		return 0
	}
	return command.Millis(max(0, at-t.clock.Now()).Milliseconds())
}

// collect collects the deadlines that have passed. It looks no further than the oldest waiting
// keepalive.
func (t *timers) collect(oldestKeepAlive Time) {
	due := t.clock.Settle(time.Duration(oldestKeepAlive))
	moveDue(&t.leases, &t.expiring, due)
	moveDue(&t.waits, &t.waitOver, due)
	moveDue(&t.delays, &t.delayOver, due)
	t.collectSilent(due)
	t.watchRecovery(due)
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

// needsRounds reports whether the healthy clock must go on although nobody asks for anything.
func (t *timers) needsRounds() bool {
	return t.leases.Len() > 0 || t.expiring.len() > 0 || t.delays.Len() > 0 || t.recovering
}

func millis(m command.Millis) time.Duration { return time.Duration(m) * time.Millisecond }
