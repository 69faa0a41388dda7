//go:build unix

package supervise

import (
	"context"
	"errors"
	"os/signal"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/lease"
)

// A candidacy is one call of Elect. An [election.Candidate] campaigns and says when to lead, on a
// goroutine of its own. Signals are handled on the goroutine that called Elect, so terms run there:
// the body of the Candidate hands each term over and waits for its end.
//
// A term is a holding, as in [Holder.Run]. Its overseer and its watcher need the end of the lease
// and not just a context. So the candidacy stands between the Candidate and the Locker: it keeps
// the lock that was granted, and says how long a release may take.
type candidacy struct {
	*Holder
	command   Command
	connect   time.Duration
	candidate *election.Candidate
	terms     chan chan error // each value is a term; an error sent on it ends the term
	quit      chan struct{}   // closed when no further term begins

	// The rest is used by one goroutine at a time: by that of the Candidate, except during a term.

	// reached reports whether the service has served this candidate before. Until then, an
	// unavailable service counts as a permanent error, such as a mistyped endpoint.
	reached    bool
	loss       error // why the last term was lost, until the next campaign
	outage     bool  // the last campaign ended because no node served it
	last       bool  // no term follows
	releaseErr error // of the last term
}

// reachedAfter is how much longer than Connect a wait must take to show that it was served before
// it failed. A wait that was never served ends after Connect, or slightly later on a busy machine.
const reachedAfter = time.Second

// surveyTime is longer than the client needs to find out that the endpoints belong to two clusters.
const surveyTime = 8 * time.Second

// Elect leads again and again until the command ends by itself, or a signal or EndWith ends the
// candidacy. It returns the exit code of the command, or an error as [Acquire] and [Holder.Run] do.
// After a [*StuckError] the process must end: the lock stays held until then.
func Elect(ctx context.Context, candidate Candidate, command Command) (code int, err error) {
	r := newHolder(candidate.Claim)
	defer signal.Stop(r.signals)
	if r.locker, err = candidate.Open(); err != nil {
		return 0, err
	}
	c := &candidacy{Holder: r, command: command, connect: candidate.Connect, terms: make(chan chan error), quit: make(chan struct{})}
	if c.candidate, err = election.New(campaignLocker{c}, candidate.Name, c.config(candidate)); err != nil {
		c.leave(closeTimeout)
		return 0, err
	}
	return c.run(ctx)
}

// lastMoment is how long before the end of the lease the Candidate considers a term over. It is as
// short as possible: the overseer decides before that.
const lastMoment = time.Millisecond

// config returns the configuration of the Candidate.
func (c *candidacy) config(candidate Candidate) election.Config {
	ttl := c.locker.Capabilities().TTL
	retry := max(ttl*2/15, election.MinRetryPeriod)
	return election.Config{
		RenewDeadline: ttl - lease.Margin(ttl) - lastMoment,
		Drain:         lastMoment,
		RetryPeriod:   retry,
		Cooldown:      retry,
		Identity:      candidate.Identity,
		Metadata:      candidate.Metadata,
		Retry:         c.retry,
	}
}

// run campaigns until the candidacy is over. When it returns, the lock and the session have ended.
func (c *candidacy) run(ctx context.Context) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- c.candidate.Run(ctx, c.serve) }()
	look := time.NewTicker(endWithInterval)
	defer look.Stop()
	for {
		select {
		case err := <-over: // the campaign failed for good
			c.leave(closeTimeout)
			return 0, err
		case term := <-c.terms:
			again, code, err := c.lead(term)
			if again {
				continue
			}
			cancel()
			c.end(term, over, err)
			return code, err
		case <-look.C:
			why := c.claim.EndWith.due()
			if why == "" {
				continue
			}
			err = &DueError{why}
		case sig := <-c.signals:
			if !c.heed(sig) { // meant for a command that is not running
				continue
			}
			err = endedBy(sig)
		}
		cancel()
		c.end(nil, over, err)
		return 0, err
	}
}

// serve is the body of the Candidate.
func (c *candidacy) serve(context.Context, lockstep.Token) error {
	term := make(chan error)
	select {
	case c.terms <- term:
		return <-term
	case <-c.quit:
		return nil
	}
}

// lead runs a term. If again is true, the term was lost and the candidate campaigns again.
func (c *candidacy) lead(term chan<- error) (again bool, code int, err error) {
	if why := c.claim.EndWith.due(); why != "" { // just as the term began
		return false, 0, &DueError{why}
	}
	h := &holding{Holder: c.Holder, command: c.command, resigns: true}
	code, err = h.hold()
	c.loss = h.overseer.loss
	if h.stuck || c.loss == nil || h.overseer.resigned {
		return false, code, err
	}
	heedStops()
	c.claim.Report(TermLost{err})
	c.candidate.Resign() // has no effect if the Candidate already considers the term over
	term <- err
	return true, 0, nil
}

// end waits until the Candidate has released the lock of its last term, if there was one, and ends
// the session; after an interrupt it does not wait. A lock whose command is still alive is kept:
// the service must not grant it to others.
func (c *candidacy) end(term chan<- error, over <-chan error, err error) {
	var stuck *StuckError
	if errors.As(err, &stuck) {
		return
	}
	close(c.quit)
	if term != nil {
		c.last = true
		term <- err
	}
	select {
	case <-over:
	case <-c.hurry():
		return
	}
	if c.releaseErr != nil && (c.last || c.loss == nil) {
		c.claim.Report(ReleaseUnconfirmed{c.releaseErr})
	}
	c.leave(c.patience())
}

// patience bounds a release, and the end of the session.
func (c *candidacy) patience() time.Duration {
	if c.outage || c.loss != nil && !revoked(c.loss) {
		return closeTimeoutLost
	}
	return closeTimeout
}

// retry decides whether the candidate campaigns again after an error, which it does only if it was
// served before. It also retries when a node of another cluster turns up later, such as one with an
// old disk: operators fix that without restarting candidates.
func (c *candidacy) retry(err error, again bool) bool {
	again = c.reached && (again || errors.Is(err, client.ErrTwoClusters))
	if again {
		c.claim.Report(CampaignFailed{err})
	}
	return again
}

// reaches reports whether a call of Acquire that took this long was served, at least initially.
// Acquire fails after connect if no node serves it.
func reaches(err error, took, connect time.Duration) bool {
	if errors.Is(err, client.ErrTwoClusters) {
		return took > max(connect, surveyTime)+reachedAfter
	}
	return !errors.Is(err, lockstep.ErrUnavailable) || took > connect+reachedAfter
}

// A campaignLocker is the Locker of the Candidate.
type campaignLocker struct{ of *candidacy }

func (l campaignLocker) Capabilities() lockstep.Capabilities { return l.of.locker.Capabilities() }

func (l campaignLocker) Close(ctx context.Context) error { return l.of.locker.Close(ctx) }

// Acquire waits for leadership.
func (l campaignLocker) Acquire(ctx context.Context, name string, opts ...lockstep.AcquireOption) (lockstep.Lock, error) {
	c := l.of
	c.loss, c.releaseErr = nil, nil
	defer c.waiting(ctx)()
	began := time.Now()
	lock, err := c.locker.Acquire(ctx, name, opts...)
	c.outage = errors.Is(err, lockstep.ErrUnavailable)
	c.reached = c.reached || reaches(err, time.Since(began), c.connect)
	if err != nil {
		return nil, err
	}
	c.lock = lock
	return termLock{lock, c}, nil
}

// A termLock is the lock of a term.
type termLock struct {
	lockstep.Lock
	of *candidacy
}

// Release releases the lock when its term is over. For a revoked lock, this is the acknowledgement
// that the service waits for.
func (l termLock) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.of.patience())
	defer cancel()
	err := l.Lock.Release(ctx)
	if !errors.Is(err, lockstep.ErrLost) {
		l.of.releaseErr = err
	}
	return err
}
