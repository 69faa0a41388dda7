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

	// ErrNotLeader says that there is no term that could be ended.
	ErrNotLeader = errors.New("election: not the leader")

	// ErrRunning says that a call of [Candidate.Run] is under way already.
	ErrRunning = errors.New("election: candidate is running already")
)

// A resignation is the cause of a term that was given up, with the time for which
// the candidate then stays away.
type resignation struct{ cooldown time.Duration }

func (resignation) Error() string { return ErrResigned.Error() }

func (resignation) Is(target error) bool { return target == ErrResigned }

// standsAgain reports whether a term that ended with this cause is followed by another campaign,
// whatever the body returned. What it returns then is mostly an echo of the loss: a connection that
// broke, a write that was refused. A nil cause is a term that was not over when the body returned;
// another one is that of Run's own context.
func standsAgain(cause error) bool {
	for _, own := range []error{ErrNotRenewed, ErrResigned, lockstep.ErrLost, lockstep.ErrReleased} {
		if errors.Is(cause, own) {
			return true
		}
	}
	return false
}

// endsRun reports whether an error of Acquire stays however often it is repeated.
func endsRun(err error) bool {
	for _, lasting := range []error{lockstep.ErrClosed, lockstep.ErrInvalid, lockstep.ErrUnsupported, lockstep.ErrMode} {
		if errors.Is(err, lasting) {
			return true
		}
	}
	return false
}

// A policy is what the pause between two terms depends on, but for the terms.
type policy struct {
	retryPeriod time.Duration
	fifo        bool // others who wait are granted the lock before a candidate that comes back
}

// pause is how long the candidate stays away after a term that ended with cause, lasted
// after its beginning. It is what a resignation asks for; it fills the RetryPeriod of
// a short term, so that a term that ends at once does not become a busy loop; and
// where there is no queue it gives others a chance to take what was given up.
func (p policy) pause(cause error, lasted time.Duration) time.Duration {
	pause := max(p.retryPeriod-lasted, 0)
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

// Vitals are what the health of a term depends on.
type vitals struct {
	unrenewed time.Duration // since the sending of the last confirmed renewal
	cause     error         // why the term is over; nil while it is not
	overFor   time.Duration // since the term was over
}

// health tells what is wrong with a term whose body has not returned. A leader
// counts as unable to renew half way from when a renewal was due to when it has to step down: one
// slow renewal is no illness, and a probe should not hear of it together with the step-down.
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
