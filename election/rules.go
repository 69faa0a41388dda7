package election

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

var (
	// ErrNotRenewed is the cause of a term that ended because no renewal was
	// confirmed for [Config.RenewDeadline]. The lock may still be held.
	ErrNotRenewed = errors.New("election: lease not renewed within the renew deadline")

	// ErrResigned is the cause of a term that [Candidate.Resign] or
	// [Candidate.StepDown] ended.
	ErrResigned = errors.New("election: leader resigned")

	// ErrNotLeader means that there is no term to end.
	ErrNotLeader = errors.New("election: not the leader")

	// ErrRunning means that a call of [Candidate.Run] is already in progress.
	ErrRunning = errors.New("election: candidate is running already")
)

// A resignation is the cause of a term that the leader gave up, with the time for which it then
// stays out of the election.
type resignation struct{ cooldown time.Duration }

func (resignation) Error() string { return ErrResigned.Error() }

func (resignation) Is(target error) bool { return target == ErrResigned }

// standsAgain reports whether another campaign follows a term that ended with this cause, whatever
// the body returned. In that case the body's error is usually a consequence of the loss: a broken
// connection, a refused write. A nil cause means that the term was not over when the body returned;
// any other cause comes from Run's own context.
func standsAgain(cause error) bool {
	for _, own := range []error{ErrNotRenewed, ErrResigned, lockstep.ErrLost, lockstep.ErrReleased} {
		if errors.Is(cause, own) {
			return true
		}
	}
	return false
}

// endsRun reports whether an error of Acquire is permanent.
func endsRun(err error) bool {
	for _, lasting := range []error{lockstep.ErrClosed, lockstep.ErrInvalid, lockstep.ErrUnsupported, lockstep.ErrMode} {
		if errors.Is(err, lasting) {
			return true
		}
	}
	return false
}

// A policy holds everything, apart from the term itself, that determines the pause between two
// terms.
type policy struct {
	retryPeriod time.Duration
	cooldown    time.Duration // after every term
	fifo        bool          // waiters are granted the lock before a candidate that returns
}

// pause is how long the candidate stays out of the election after a term that ended with cause and
// lasted this long. It is at least the cooldown, and that of a resignation; a short term is padded
// to a RetryPeriod, so that terms that end at once do not become a busy loop; and without a queue
// it gives others a chance to take the lock that was given up.
func (p policy) pause(cause error, lasted time.Duration) time.Duration {
	pause := max(p.retryPeriod-lasted, p.cooldown, 0)
	if r, ok := errors.AsType[resignation](cause); ok {
		pause = max(pause, r.cooldown)
	}
	if !p.fifo && givenUp(cause) {
		pause = max(pause, p.retryPeriod)
	}
	return pause
}

func givenUp(cause error) bool {
	loss, ok := errors.AsType[*lockstep.LossError](cause)
	return errors.Is(cause, ErrResigned) || ok && loss.Reason == lockstep.Revoked
}

// Vitals hold what the health of a term depends on.
type vitals struct {
	unrenewed time.Duration // since the last confirmed renewal was sent
	cause     error         // why the term is over; nil while it is not
	overFor   time.Duration // since the term was over
}

// health returns what is wrong with a term whose body has not returned. A leader counts as unable
// to renew from the midpoint between when a renewal was due and when it must step down: one slow
// renewal is not a failure, and a probe should learn of a real one before the leader steps down.
func (v vitals) health(ttl time.Duration, c Config) error {
	due := lease.Interval(ttl)
	switch {
	case v.cause == nil && v.unrenewed > due+(c.RenewDeadline-due)/2:
		return fmt.Errorf("election: leader cannot renew: the last renewal was %v ago, the next was due after %v", v.unrenewed.Round(time.Millisecond), due)
	case v.cause == nil:
		return nil
	case v.overFor > c.Drain:
		return fmt.Errorf("election: the body has not returned %v after the end of its term, drain is %v: %w", v.overFor.Round(time.Millisecond), c.Drain, v.cause)
	case unrenewable(v.cause):
		return fmt.Errorf("election: leader could not renew: %w", v.cause)
	default:
		return nil
	}
}

func unrenewable(cause error) bool {
	loss, ok := errors.AsType[*lockstep.LossError](cause)
	return errors.Is(cause, ErrNotRenewed) || ok && loss.Reason == lockstep.LeaseEnded
}
