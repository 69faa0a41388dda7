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

// releaseTime bounds the release at the end of a term. After that it continues in the background.
const releaseTime = 5 * time.Second

// A Candidate campaigns for leadership. It is safe for concurrent use.
type Candidate struct {
	locker lockstep.Locker
	name   string
	caps   lockstep.Capabilities
	cfg    Config

	mu struct {
		sync.Mutex
		running bool
		term    *term // nil while no body is running
	}
}

// New returns a Candidate for the leadership that the lock name stands for. It sends nothing and
// starts nothing. A name or cfg that breaks a rule is a [*lockstep.InvalidError]; an OnNewLeader
// that the Locker cannot support is [lockstep.ErrUnsupported].
//
// Only candidates of this election may use the lock. The caller still owns the Locker: close it
// after Run has returned.
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

// Identity is the name under which others see this candidate when it leads.
func (c *Candidate) Identity() string { return c.cfg.Identity }

// Run campaigns until lead has finished. It calls lead for each term, with a context that ends with
// the term and the fencing token of the term. Terms are paired and never overlap; the package
// documentation lists the other guarantees. The Err of the context checks the lock against the
// suspend-proof clock, as in [lockstep.Do]: check it before each write.
//
// If lead returns before the term is over, Run ends: it returns nil if lead returned nil, or lead's
// error. The same holds if lead returns after the ctx of Run is done. If the term ended otherwise,
// by a loss or a resignation, the candidate campaigns again, whatever lead returned: lead must be
// restartable, and returning an error does not leave the election. To leave, cancel ctx.
// [context.Cause] of lead's context reports why a term ended: [ErrNotRenewed], [ErrResigned], a
// [*lockstep.LossError], or the cause of ctx.
//
// A backend error does not end Run either: the candidate campaigns again after
// [Config.RetryPeriod], without limit. The exceptions are a closed Locker and a request that would
// fail on every retry ([lockstep.ErrInvalid], [lockstep.ErrUnsupported], [lockstep.ErrMode]),
// unless [Config.Retry] decides otherwise.
//
// If ctx ends while this candidate is not leading, Run returns its cause. Run returns after lead
// has returned and the lock is released, which takes at most 5 seconds; a release whose outcome is
// unknown by then continues in the background and is logged. If lead panics, Run releases the lock
// and the panic continues to the caller. Only one Run may be in progress at a time, otherwise it
// returns [ErrRunning]; a candidate can be run again.
func (c *Candidate) Run(ctx context.Context, lead func(ctx context.Context, token lockstep.Token) error) error {
	if err := c.start(); err != nil {
		return err
	}
	defer c.stop()
	ctx, cancel := context.WithCancel(ctx)
	var report sync.WaitGroup
	defer func() { // deferred in case of a panic, like everything that ends a term
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
		rules := policy{c.cfg.RetryPeriod, withJitter(c.cfg.Cooldown, rand.Float64()), c.caps.FIFO}
		lease.Sleep(ctx, rules.pause(cause, time.Since(began)))
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

// campaign waits until the lock is granted. It fails when ctx is done, and on a permanent error.
func (c *Candidate) campaign(ctx context.Context) (lockstep.Lock, error) {
	for ctx.Err() == nil {
		lock, err := c.locker.Acquire(ctx, c.name, lockstep.WithMetadata(c.cfg.labels()))
		if err == nil {
			return lock, nil
		}
		if ctx.Err() != nil {
			break
		}
		if !c.cfg.Retry(err, !endsRun(err)) {
			return nil, err
		}
		c.cfg.Logger.Warn("campaign failed, standing again", "err", err)
		lease.Sleep(ctx, withJitter(c.cfg.RetryPeriod, rand.Float64()))
	}
	return nil, context.Cause(ctx)
}

// lead runs one term, from the grant to the release. It returns why the term was over, or nil if it
// was not when the body returned, and what the body returned.
func (c *Candidate) lead(ctx context.Context, lock lockstep.Lock, body func(context.Context, lockstep.Token) error) (cause, err error) {
	t := newTerm(ctx, lock, c.caps.TTL, c.cfg.RenewDeadline)
	defer c.release(ctx, lock)
	defer t.stop()
	if cause := t.cause(); cause != nil { // the term ended just as it was granted
		return cause, cause
	}
	c.setTerm(t)
	defer c.setTerm(nil)
	c.cfg.Logger.Info("term begins", "lock", c.name, "token", uint64(lock.Token()), "identity", c.cfg.Identity)
	err = body(bodyContext{t.ctx, t}, lock.Token())
	return t.cause(), err
}

// release gives the lock back, even if ctx is done. For a revoked lock it is the holder's
// acknowledgement, so it is also called for lost locks.
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

// current is the term whose body is running, or nil.
func (c *Candidate) current() *term {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.term
}

// IsLeader reports whether this candidate leads now: the lock is held and the term is not over,
// though its body may not have stopped yet. It does no I/O. It is for display and metrics; code
// that acts on it can be arbitrarily late, so pass the token to the resource instead.
func (c *Candidate) IsLeader() bool {
	t := c.current()
	return t != nil && t.cause() == nil
}

// Resign ends the current term. The candidate campaigns again when its body has returned and the
// lock is released: after those already waiting or, on a backend without a queue, a RetryPeriod
// later. It does not wait for that, so the body can call it. Without a term to end it changes
// nothing and returns [ErrNotLeader].
func (c *Candidate) Resign() error { return c.StepDown(0) }

// StepDown is like Resign, but the candidate campaigns again only after cooldown, 0 to
// [lockstep.MaxWait], counted from the release of the lock. The cooldown also ends when Run's ctx
// ends.
func (c *Candidate) StepDown(cooldown time.Duration) error {
	if err := checkCooldown(cooldown); err != nil {
		return err
	}
	t := c.current()
	if t == nil || t.cause() != nil {
		return ErrNotLeader
	}
	t.cancel(resignation{cooldown})
	return nil
}

// Healthy is for a liveness probe. It fails in three cases: while this candidate leads and its
// lease has not been renewed for longer than the midpoint between TTL/3, when the next renewal was
// due, and RenewDeadline; after a term ended for lack of renewal, until its body has returned; and
// if a body has not returned within Drain after the end of its term. A candidate that does not lead
// is healthy, whatever keeps it from leading: restarting it would not help. Healthy does no I/O.
func (c *Candidate) Healthy() error {
	t := c.current()
	if t == nil {
		return nil
	}
	return t.vitals().health(c.caps.TTL, c.cfg)
}
