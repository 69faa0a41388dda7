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
// goroutine of its own. The signals belong to the caller of Elect, so terms run there: the body of
// the Candidate hands each over and waits for its end.
//
// A term is a holding, as in [Holder.Run]. Its overseer and its watcher need the end of the lease
// and not just a context. So the candidacy stands between the Candidate and the Locker: it keeps
// the lock that was granted, and says how long a release may take.
type candidacy struct {
	*Holder
	command  Command
	connect  time.Duration
	standing *election.Candidate
	terms    chan chan error // each is a term; what is sent back ends it
	quit     chan struct{}   // closed when no further term begins

	// The rest is used by one goroutine at a time: by that of the Candidate, except during a term.

	// reached reports whether the service has served this candidate before. Until then, an
	// unavailable service is treated as permanent, such as a mistyped endpoint.
	reached    bool
	loss       error // why the last term was lost, until the next campaign
	outage     bool  // the last campaign ended because no node served it
	last       bool  // no term follows
	releaseErr error // of the last term
}

// reachedAfter is how much longer than Connect a wait must take to show that it was served before
// it failed. A wait that was never served ends after Connect, or slightly later on a busy machine.
const reachedAfter = time.Second

// surveyed is longer than the client needs to find out that the endpoints belong to two clusters.
const surveyed = 8 * time.Second

// Elect leads again and again until the command ends by itself, or a signal or EndWith ends the
// candidacy. It returns the exit code of the command, or an error as [Acquire] and [Holder.Run] do.
// After a [*StuckError] the process must end: the lock is not released before.
func Elect(ctx context.Context, candidate Candidate, command Command) (code int, err error) {
	r := newHolder(candidate.Claim)
	defer signal.Stop(r.signals)
	if r.locker, err = candidate.Open(); err != nil {
		return 0, err
	}
	c := &candidacy{Holder: r, command: command, connect: candidate.Connect, terms: make(chan chan error), quit: make(chan struct{})}
	if c.standing, err = election.New(campaignLocker{c}, candidate.Name, c.config(candidate)); err != nil {
		c.leave(goodbye)
		return 0, err
	}
	return c.run(ctx)
}

// lastMoment is how long before the end of the lease the Candidate considers a term as over. It is
// as short as possible: the overseer decides before that.
const lastMoment = time.Millisecond

// config returns how the Candidate stands for election.
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

// run stands for election until the candidacy is over. Then the lock and the session have ended.
func (c *candidacy) run(ctx context.Context) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- c.standing.Run(ctx, c.serve) }()
	look := time.NewTicker(endWithLook)
	defer look.Stop()
	for {
		select {
		case err := <-over: // the campaign failed for good
			c.leave(goodbye)
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

// lead runs a term. If the candidate stands again, the term is over.
func (c *candidacy) lead(term chan<- error) (again bool, code int, err error) {
	if why := c.claim.EndWith.due(); why != "" { // at the same moment
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
	c.standing.Resign() // has no effect if the Candidate considers the term as over already
	term <- err
	return true, 0, nil
}

// end waits until the Candidate has released the lock of its last term, if there was one, and ends
// the session; after an interrupt it does not wait. A lock whose command is still alive is kept:
// the service must not believe that we let go.
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
		return goodbyeLost
	}
	return goodbye
}

// retry decides whether the candidate stands again after an error, which it does only if it was
// served before. A node of another cluster that turns up later, such as one with an old disk, gets
// fixed without help from the candidates.
func (c *candidacy) retry(err error, again bool) bool {
	again = c.reached && (again || errors.Is(err, client.ErrTwoClusters))
	if again {
		c.claim.Report(CampaignFailed{err})
	}
	return again
}

// reaches reports whether a call of Acquire that took this long was served, at least initially.
// Acquire fails when no node serves for connect.
func reaches(err error, took, connect time.Duration) bool {
	if errors.Is(err, client.ErrTwoClusters) {
		return took > max(connect, surveyed)+reachedAfter
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

// Release releases the lock once nothing of the command is left. For a revoked lock, this is the
// acknowledgement that the service waits for.
func (l termLock) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.of.patience())
	defer cancel()
	err := l.Lock.Release(ctx)
	if !errors.Is(err, lockstep.ErrLost) {
		l.of.releaseErr = err
	}
	return err
}
