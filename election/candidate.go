package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// releaseTime bounds the release at the end of a term. Undoing goes on in the background after it.
const releaseTime = 5 * time.Second

// A Candidate stands for the office of one leader. It is safe for concurrent use.
type Candidate struct {
	locker lockstep.Locker
	name   string
	caps   lockstep.Capabilities
	cfg    Config

	mu struct {
		sync.Mutex
		running bool
		term    *term // nil while no body runs
	}
}

// New returns a Candidate for the office that the lock name stands for. It sends nothing
// and starts nothing. What breaks a rule, of the name or of cfg, is a
// [*lockstep.InvalidError]; an OnNewLeader that the Locker cannot serve is
// [lockstep.ErrUnsupported].
//
// The lock is to be used by candidates of this office alone. The Locker stays the
// caller's: close it after Run has returned.
func New(locker lockstep.Locker, name string, cfg Config) (*Candidate, error) {
	caps := locker.Capabilities()
	if err := lease.Check(caps.TTL); err != nil {
		return nil, fmt.Errorf("election: %s: %w", caps.Backend, err)
	}
	if err := lockstep.CheckName(name); err != nil {
		return nil, err
	}
	cfg, err := cfg.resolve(caps.TTL)
	if err != nil {
		return nil, err
	}
	if cfg.OnNewLeader != nil && !canTellLeader(locker) {
		return nil, fmt.Errorf("%w: %s cannot tell who the leader is, which OnNewLeader needs", lockstep.ErrUnsupported, caps.Backend)
	}
	return &Candidate{locker: locker, name: name, caps: caps, cfg: cfg}, nil
}

// Identity is what others see of this candidate when it leads.
func (c *Candidate) Identity() string { return c.cfg.Identity }

// Run stands for election until lead has finished, and calls lead for each term, with
// a context that ends with the term and the fencing token of the term. Terms are
// paired and never overlap; the package says what else holds. The Err of the context asks the
// lock by the suspend-proof clock, as that of [lockstep.Do] does: ask it before each write.
//
// What lead returns ends Run when the term was not over by then: nil makes Run return nil, an error
// that error. So does what it returns after the ctx of Run is done. If the term ended otherwise, by
// a loss or a resignation, the candidate stands again, whatever lead returned: lead has to be
// restartable, and it is no use to return an error in order to leave. To leave, end ctx.
// [context.Cause] of lead's context tells why a term ended: [ErrNotRenewed], [ErrResigned], a
// [*lockstep.LossError], or the cause of ctx.
//
// An error of the backend does not end Run either: the candidate stands again after
// [Config.RetryPeriod], for ever. The exceptions are a Locker that is closed, and a request that no
// repetition mends ([lockstep.ErrInvalid], [lockstep.ErrUnsupported], [lockstep.ErrMode]).
//
// When ctx ends while nobody is leading here, Run returns its cause. Run returns when lead has
// returned and the lock is given back, for which it takes 5 seconds at most; a release whose end is
// unknown by then goes on in the background and is logged. A panic of lead gives the lock back and
// goes on to the caller. A candidate runs once at a time, else [ErrRunning], and can be run again.
func (c *Candidate) Run(ctx context.Context, lead func(ctx context.Context, token lockstep.Token) error) error {
	if err := c.start(); err != nil {
		return err
	}
	defer c.stop()
	ctx, cancel := context.WithCancel(ctx)
	var report sync.WaitGroup
	defer func() { // deferred for the sake of panics, like all that ends a term
		cancel()
		report.Wait()
	}()
	if c.cfg.OnNewLeader != nil {
		report.Go(func() { c.report(ctx) })
	}
	for {
		lock, err := c.campaign(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		cause, err := c.lead(ctx, lock, lead)
		if !standsAgain(cause) {
			return err
		}
		c.cfg.Logger.Info("term over", "lock", c.name, "token", uint64(lock.Token()), "cause", cause, "err", err)
		rules := policy{c.cfg.RetryPeriod, c.caps.FIFO}
		sleep(ctx, rules.pause(cause, time.Since(began)))
	}
}

func (c *Candidate) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.running {
		return ErrRunning
	}
	c.mu.running = true
	return nil
}

func (c *Candidate) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.running = false
}

// campaign waits until the lock is granted. It fails when ctx is done, and with an error that
// stays.
func (c *Candidate) campaign(ctx context.Context) (lockstep.Lock, error) {
	for ctx.Err() == nil {
		lock, err := c.locker.Acquire(ctx, c.name, lockstep.WithMetadata(c.cfg.labels()))
		if err == nil {
			return lock, nil
		}
		if ctx.Err() != nil {
			break
		}
		if endsRun(err) {
			return nil, err
		}
		c.cfg.Logger.Warn("campaign failed, standing again", "err", err)
		sleep(ctx, withJitter(c.cfg.RetryPeriod, rand.Float64()))
	}
	return nil, context.Cause(ctx)
}

// lead is one term, from the grant to the release. It returns why the term was over,
// nil if it was not when the body returned, and what the body returned.
func (c *Candidate) lead(ctx context.Context, lock lockstep.Lock, body func(context.Context, lockstep.Token) error) (cause, err error) {
	t := newTerm(ctx, lock, c.caps.TTL, c.cfg.RenewDeadline)
	defer c.release(ctx, lock)
	defer t.stop()
	if cause := t.cause(); cause != nil { // the grant came together with its end
		return cause, cause
	}
	c.setTerm(t)
	defer c.setTerm(nil)
	c.cfg.Logger.Info("term begins", "lock", c.name, "token", uint64(lock.Token()), "identity", c.cfg.Identity)
	err = body(bodyContext{t.ctx, t}, lock.Token())
	return t.cause(), err
}

// release gives the lock back, also when ctx is done. Of a lock that was revoked it is the holder's
// consent, so it is called for those that are lost too.
func (c *Candidate) release(ctx context.Context, lock lockstep.Lock) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if err := lock.Release(ctx); err != nil && !errors.Is(err, lockstep.ErrLost) {
		c.cfg.Logger.Warn("lock not confirmed to be free", "err", err)
	}
}

func (c *Candidate) setTerm(t *term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.term = t
}

// current is the term whose body runs, or nil.
func (c *Candidate) current() *term {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.term
}

// IsLeader reports whether this candidate leads now: the lock is held and the term is not over,
// though its body may not have stopped yet. It does no I/O. It is for display and metrics; what
// acts on it can be late by any time, so give the token to the resource instead.
func (c *Candidate) IsLeader() bool {
	t := c.current()
	return t != nil && t.cause() == nil
}

// Resign ends the present term and stands again when its body has returned and the lock is given
// back: behind those who wait, or, on a backend without a queue, a RetryPeriod later. It does not
// wait for that, so that the body can call it. Without a term that could be ended it changes
// nothing and returns [ErrNotLeader].
func (c *Candidate) Resign() error { return c.StepDown(0) }

// StepDown is Resign, but the candidate stands again only after cooldown, 0 to
// [lockstep.MaxWait], counted from the release of the lock. The end of Run's ctx ends it too.
func (c *Candidate) StepDown(cooldown time.Duration) error {
	if cooldown < 0 || cooldown > lockstep.MaxWait {
		return &lockstep.InvalidError{Field: "cooldown", Value: cooldown.String(), Rule: fmt.Sprintf("must be 0 to %v", lockstep.MaxWait)}
	}
	t := c.current()
	if t == nil || t.cause() != nil {
		return ErrNotLeader
	}
	t.cancel(resignation{cooldown})
	return nil
}

// Healthy is for a liveness probe. It fails while this candidate leads and its lease was not
// renewed for longer than half way from TTL/3, when the next renewal was due, to RenewDeadline;
// when a term ended for lack of renewal, until its body has returned; and when a body has not
// returned within Drain of the end of its term. A candidate that does not lead is healthy, whatever
// keeps it from leading: restarting it would help nobody. Healthy does no I/O.
func (c *Candidate) Healthy() error {
	t := c.current()
	if t == nil {
		return nil
	}
	return t.vitals().health(c.caps.TTL, c.cfg)
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
