//go:build unix

package supervise

import (
	"context"
	"errors"
	"math/rand/v2"
	"os/signal"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/election"
)

// A candidacy is one call of Elect: a series of terms, with a wait before each.
//
// It does not use election.Candidate, whose body is a function that gets a context and a token. A
// command needs more: the overseer, and the watcher that stops the command when this process is
// frozen or killed, need the end of the lease itself; and what a signal means depends on the state.
// So a term here is a holding, as in Run, and the rules are those of package election: the
// candidate stands again after every loss and after transient errors, at most once per retry
// period, and releases the lock after the command has ended, never before.
type candidacy struct {
	*Holder
	command Command
	connect time.Duration
	retry   time.Duration
	// reached reports whether the service has served this candidate before. Until then, an
	// unavailable service is treated as permanent, such as a mistyped endpoint.
	reached bool
}

// reachedAfter is how much longer than Connect a wait must take to show that it was
// served before it failed. A wait that was never served ends after Connect, or slightly
// later on a busy machine.
const reachedAfter = time.Second

// surveyed is longer than the client needs to find out that the endpoints belong to two clusters.
const surveyed = 8 * time.Second

// Elect leads again and again until the command ends by itself, or a signal or EndWith ends the
// candidacy. It returns the exit code of the command, or an error as [Acquire] and [Holder.Run] do.
func Elect(ctx context.Context, candidate Candidate, command Command) (code int, err error) {
	r := newHolder(candidate.Claim)
	defer signal.Stop(r.signals)
	if r.locker, err = candidate.Open(); err != nil {
		return 0, err
	}
	c := &candidacy{Holder: r, command: command, connect: candidate.Connect, retry: retryPeriod(r.locker.Capabilities().TTL)}
	for again := true; again; {
		again, code, err = c.campaign(ctx)
	}
	return code, err
}

// retryPeriod is the retry period of package election for this TTL.
func retryPeriod(ttl time.Duration) time.Duration { return max(ttl*2/15, election.MinRetryPeriod) }

// campaign waits for leadership and then runs the term. It reports whether to stand again. If not,
// the candidacy is over, the lock and the session have ended, and err says how.
func (c *candidacy) campaign(ctx context.Context) (again bool, code int, err error) {
	began := time.Now()
	c.lock, err = c.acquire(ctx)
	c.reached = c.reached || reaches(err, time.Since(began), c.connect)
	if err == nil {
		return c.lead(ctx)
	}
	if ctx.Err() != nil || !c.reached || !passes(err) {
		c.leave(goodbye)
		return false, 0, err
	}
	c.claim.Report(CampaignFailed{err})
	again, err = c.pause(ctx)
	return again, 0, err
}

// reaches reports whether a call of Acquire that took this long was served, at least initially.
// Acquire fails when no node serves for connect.
func reaches(err error, took, connect time.Duration) bool {
	if errors.Is(err, client.ErrTwoClusters) {
		return took > max(connect, surveyed)+reachedAfter
	}
	return !errors.Is(err, lockstep.ErrUnavailable) || took > connect+reachedAfter
}

// passes reports whether an error of Acquire may be transient, once the service was reached. A node
// of another cluster that turns up later, such as one with an old disk, gets fixed without help
// from the candidates.
func passes(err error) bool {
	if errors.Is(err, client.ErrTwoClusters) {
		return true
	}
	for _, lasting := range []error{lockstep.ErrClosed, lockstep.ErrInvalid, lockstep.ErrUnsupported, lockstep.ErrMode} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	var bySignal *SignalError
	var due *DueError
	return !errors.As(err, &bySignal) && !errors.As(err, &due)
}

// lead runs one term.
func (c *candidacy) lead(ctx context.Context) (again bool, code int, err error) {
	h := &holding{Holder: c.Holder, command: c.command, resigns: true}
	code, err = h.hold()
	switch {
	case h.stuck: // part of the command is alive: the service must not believe that we let go
		return false, 0, err
	case h.overseer.loss == nil || h.overseer.resigned:
		c.Release(h.overseer.loss)
		return false, code, err
	}
	heedStops()
	c.claim.Report(TermLost{err})
	if err := c.giveBack(h.overseer.loss); err != nil {
		c.leave(goodbyeLost)
		return false, 0, err
	}
	again, err = c.pause(ctx)
	return again, 0, err
}

// giveBack tells the service that the command of a lost term has ended. If the lock was revoked,
// this is the acknowledgement that the service waits for. A signal that arrives meanwhile is
// returned as the end of the candidacy.
func (c *candidacy) giveBack(loss error) (end error) {
	patience := goodbye
	if !revoked(loss) {
		patience = goodbyeLost
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.lock.Release(ctx) }()
	for {
		select {
		case <-done: // after a failure, the lease still ends it
			return end
		case sig := <-c.signals:
			if c.heed(sig) {
				end = endedBy(sig)
			}
		}
	}
}

// pause waits for a retry period, so that terms lost at once do not cause a busy loop, and so that
// others can take the lock that this candidate had to give up. It reports true, to stand again,
// unless a signal arrives.
func (c *candidacy) pause(ctx context.Context) (again bool, err error) {
	jitter := time.Duration(rand.Float64() * (election.JitterFactor - 1) * float64(c.retry))
	timer := time.NewTimer(c.retry + jitter)
	defer timer.Stop()
	look := time.NewTicker(endWithLook)
	defer look.Stop()
	for {
		select {
		case <-timer.C:
			return true, nil
		case <-look.C:
			why := c.claim.EndWith.due()
			if why == "" {
				continue
			}
			err = &DueError{why}
		case <-ctx.Done():
			err = context.Cause(ctx)
		case sig := <-c.signals:
			if !c.heed(sig) {
				continue
			}
			err = endedBy(sig)
		}
		c.leave(goodbyeLost)
		return false, err
	}
}
