package memlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// A Locker hands out the locks of a [Space]. It also implements [lockstep.Inspector],
// [lockstep.Watcher] and [lockstep.Detacher].
type Locker struct {
	space  *Space
	closed chan struct{} // closed by Close

	// The space's mutex guards the fields below.
	session *session
	cut     chan struct{} // nil while the space can be reached; closed by Heal
	orphans []*claim      // waiting for a new session once the space can be reached
	undo    []*claim      // to be released once the space can be reached
	missed  []string      // watched names that changed while it was cut off
}

var (
	_ lockstep.Locker    = (*Locker)(nil)
	_ lockstep.Inspector = (*Locker)(nil)
	_ lockstep.Watcher   = (*Locker)(nil)
	_ lockstep.Detacher  = (*Locker)(nil)
)

// New returns a Locker in a new space: see [NewSpace] for when it panics.
func New(opts ...Option) *Locker { return NewSpace(opts...).Locker() }

// Space returns the Locker's space.
func (l *Locker) Space() *Space { return l.space }

// Capabilities implements [lockstep.Locker]. It declares all of them except surviving a failover.
func (l *Locker) Capabilities() lockstep.Capabilities {
	return lockstep.Capabilities{
		Backend: "memory",
		TTL:     l.space.ttl,
		Grace:   Grace,
		Fenced:  true, FIFO: true, Shared: true, Permits: true, Multi: true, LockDelay: true,
		Notes: []string{"Excludes only the goroutines of one process: it is for tests."},
	}
}

// Acquire implements [lockstep.Locker].
func (l *Locker) Acquire(ctx context.Context, name string, opts ...lockstep.AcquireOption) (lockstep.Lock, error) {
	lock, err := l.acquire(ctx, name, opts)
	if err != nil {
		return nil, &lockstep.OpError{Op: "acquire", Lock: name, Err: err}
	}
	return lock, nil
}

func (l *Locker) acquire(ctx context.Context, name string, opts []lockstep.AcquireOption) (*lock, error) {
	cfg, err := lockstep.ResolveAcquire(l.Capabilities(), name, opts...)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var waitOver <-chan time.Time // nil: no limit
	if cfg.HasWait {
		timer := time.NewTimer(cfg.Wait)
		defer timer.Stop()
		waitOver = timer.C
	}
	c, err := l.submit(ctx, cfg, waitOver)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.answered:
	case <-ctx.Done():
		err = ctx.Err()
	case <-waitOver:
		err = lockstep.ErrBusy
	case <-l.closed:
		err = lockstep.ErrClosed
	}
	return l.outcome(ctx, c, err)
}

// submit puts a claim into the space as soon as the space can be reached.
func (l *Locker) submit(ctx context.Context, cfg lockstep.AcquireConfig, waitOver <-chan time.Time) (*claim, error) {
	s := l.space
	s.mu.Lock()
	for l.cut != nil && !l.isClosed() {
		healed := l.cut
		s.mu.Unlock()
		select {
		case <-healed:
		case <-l.closed:
		case <-waitOver:
			return nil, fmt.Errorf("%w: cut off", lockstep.ErrUnavailable)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: cut off: %w", lockstep.ErrUnavailable, ctx.Err())
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if l.isClosed() {
		return nil, lockstep.ErrClosed
	}
	c := &claim{cfg: cfg, session: l.session, answered: make(chan struct{})}
	if err := s.table.add(c, time.Now()); err != nil {
		return nil, err
	}
	l.session.keep(c)
	s.settleLocked(cfg.Names...)
	if cfg.Try() && c.state == waiting {
		busy := s.table.busy(c)
		s.freeLocked(c)
		return nil, busy
	}
	return c, nil
}

// outcome ends an Acquire. A grant that coincides with the end of the wait is handed out; one that
// coincides with the end of ctx is released.
func (l *Locker) outcome(ctx context.Context, c *claim, why error) (*lock, error) {
	ended := ctx.Err() // checked before locking: the ctx of lockstep.Do checks a lock of this space
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.lock != nil && ended == nil && !l.isClosed():
		return c.lock, nil
	case c.err != nil:
		return nil, c.err
	case ended != nil:
		why = ended
	}
	return nil, l.withdrawLocked(c, why)
}

// withdrawLocked undoes a claim whose Acquire has ended, and returns a more precise form of the
// given reason.
func (l *Locker) withdrawLocked(c *claim, why error) error {
	s := l.space
	if c.lock != nil {
		c.lock.endLocked(lockstep.ErrReleased)
	}
	if l.cut != nil {
		s.undoLaterLocked(l, c)
		return fmt.Errorf("%w: cut off: %w", lockstep.ErrUncertain, why)
	}
	if errors.Is(why, lockstep.ErrBusy) && c.state == waiting {
		why = s.table.busy(c)
	}
	s.freeLocked(c)
	return why
}

func (s *Space) undoLaterLocked(l *Locker, c *claim) {
	if !c.abandoned {
		c.abandoned = true
		l.undo = append(l.undo, c)
	}
}

// notifyLocked notifies the holder of the state of its claim, if it can be reached. Otherwise Heal
// does so.
func (s *Space) notifyLocked(c *claim) {
	l := c.session.locker
	if l == nil || l.cut != nil || c.abandoned {
		return
	}
	switch {
	case c.lock != nil && c.loss != nil:
		c.lock.endLocked(c.loss)
	case c.lock != nil:
	case c.err != nil:
		close(c.answered)
	case c.state == granted:
		c.lock = newLock(l, c)
		close(c.answered)
	}
}

func (l *Locker) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Close implements [lockstep.Locker]. While the Locker is cut off and has any claims, it returns an
// error that is [lockstep.ErrUncertain].
func (l *Locker) Close(context.Context) error {
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.isClosed() {
		return nil
	}
	close(l.closed)
	var errs []error
	for _, c := range slices.Clone(l.session.claims) {
		if c.lock != nil {
			c.lock.endLocked(lockstep.ErrReleased)
		}
		if l.cut == nil {
			s.freeLocked(c)
			continue
		}
		s.undoLaterLocked(l, c)
		errs = append(errs, &lockstep.OpError{Op: "release", Lock: c.cfg.Names[0], Err: lockstep.ErrUncertain})
	}
	return errors.Join(errs...)
}

// Cut disconnects the Locker from the space, as if a cable were pulled: nothing gets through in
// either direction. Unless [Locker.Heal] comes first, its locks end after the TTL minus
// [lease.Margin] by its own clock, and the space grants them to others after the TTL plus [Grace].
func (l *Locker) Cut() {
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	if l.cut == nil {
		l.cut = make(chan struct{})
		l.space.stopRenewingLocked(l.session)
	}
}

// Heal reconnects the Locker after [Locker.Cut]. The Locker learns what it missed. Heal does
// nothing if the Locker is not cut off.
func (l *Locker) Heal() {
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.cut == nil {
		return
	}
	s.lapseLocked(l.session)
	if l.session.expired {
		s.giveUpLocked(l.session, lockstep.SessionExpired)
	}
	close(l.cut)
	l.cut = nil
	l.session.renewAgain()
	s.requeueLocked(l)
	for _, c := range l.undo {
		s.freeLocked(c)
	}
	l.undo = nil
	for _, c := range slices.Clone(l.session.claims) {
		s.notifyLocked(c)
	}
	s.changedLocked(l.missed)
	l.missed = nil
}

// Expire ends the Locker's session in the space at once, as if the space had missed its renewals.
// Its locks are lost with [lockstep.SessionExpired], and waiting claims go to the end of their
// queues in a new session. A Locker that is cut off learns of it on Heal; until then, or until its
// lease ends, it trusts its locks while the next holder holds them too, which a real backend never
// allows.
func (l *Locker) Expire() {
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	l.space.expireLocked(l.session)
}
