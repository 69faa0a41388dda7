package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// An acquisition is one call of Acquire: its tries and how long it continues.
type acquisition struct {
	locker  *Locker
	cfg     lockstep.AcquireConfig
	backoff lease.Backoff
	heard   time.Duration // when the store last answered
	last    error         // from the last try
}

func newAcquisition(l *Locker, cfg lockstep.AcquireConfig) *acquisition {
	now := l.cfg.Clock.Now()
	return &acquisition{
		locker: l, cfg: cfg, heard: now,
		backoff: lease.Backoff{Base: l.cfg.RetryBase, Max: l.cfg.RetryMax},
	}
}

// run tries until there is a lock or a reason to stop.
func (a *acquisition) run(ctx context.Context) (*lock, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	for {
		if err := a.ended(ctx); err != nil {
			return nil, err
		}
		k, err := a.try(ctx)
		if err == nil {
			return k, nil
		}
		a.remember(ctx, err)
		if a.isFinal(err) {
			return nil, err
		}
		a.pause(ctx)
	}
}

// remember keeps the error of the last try. If the end of the wait cut the try short, and it is
// undone, the error before it says more, such as who has the lock.
func (a *acquisition) remember(ctx context.Context, err error) {
	cutShort := errors.Is(err, lockstep.ErrUnavailable) || errors.Is(err, lockstep.ErrUncertain)
	if ctx.Err() == nil || a.last == nil || !cutShort {
		a.last = err
	}
}

// errWaitOver is the cause of the context of an acquisition whose wait ran out.
var errWaitOver = errors.New("wait over")

// bound returns the context of the wait: it ends with the caller's context, with the Locker, and
// after the wait. A try has no wait that could run out: it is made once.
func (a *acquisition) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stops := []func() bool{context.AfterFunc(a.locker.life, func() { cancel(lockstep.ErrClosed) })}
	if a.cfg.HasWait && !a.cfg.Try() {
		stops = append(stops, time.AfterFunc(a.cfg.Wait, func() { cancel(errWaitOver) }).Stop)
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// ended returns why the wait is over, if it is.
func (a *acquisition) ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return nil
	case errors.Is(cause, lockstep.ErrClosed):
		return lockstep.ErrClosed
	case errors.Is(cause, errWaitOver):
		return a.waitOver()
	case a.last == nil || errors.Is(a.last, lockstep.ErrBusy) || errors.Is(a.last, ErrQueued):
		return ctx.Err()
	default: // earlier errors help to find the cause
		return fmt.Errorf("%w: %w", ctx.Err(), a.last)
	}
}

// waitOver is the error when the wait ran out: busy if the store said so, or else why it could not.
func (a *acquisition) waitOver() error {
	switch {
	case a.last == nil || errors.Is(a.last, ErrQueued) && !errors.Is(a.last, lockstep.ErrBusy):
		return lockstep.ErrBusy
	case errors.Is(a.last, lockstep.ErrBusy):
		return busyOf(a.last)
	default:
		return a.last
	}
}

// busyOf hides that the claim was left in the queue, which concerns only the Locker.
func busyOf(err error) error {
	if busy, ok := errors.AsType[*lockstep.BusyError](err); ok {
		return busy
	}
	return lockstep.ErrBusy
}

// isFinal reports whether trying again is useless or not wanted.
func (a *acquisition) isFinal(err error) bool {
	for _, useless := range []error{lockstep.ErrUnsupported, lockstep.ErrInvalid, lockstep.ErrQuota, lockstep.ErrMode} {
		if errors.Is(err, useless) {
			return true
		}
	}
	return a.cfg.Try() || a.silent() > a.locker.cfg.UnavailableAfter
}

// silent is how long ago the store last answered.
func (a *acquisition) silent() time.Duration { return a.locker.cfg.Clock.Now() - a.heard }

// pause waits before the next try, or until ctx is done.
func (a *acquisition) pause(ctx context.Context) {
	d := a.backoff.Next()
	if waker, ok := a.locker.backend.(Waker); ok && errors.Is(a.last, lockstep.ErrBusy) {
		waker.Wait(ctx, &Claim{AcquireConfig: a.cfg}, d)
		return
	}
	lease.Sleep(ctx, d)
}

// try makes one claim. A grant that arrives just as ctx ends is released.
func (a *acquisition) try(ctx context.Context) (*lock, error) {
	l := a.locker
	c := &Claim{AcquireConfig: a.cfg, ID: newID(), TTL: l.cfg.Capabilities.TTL}
	state := lease.New(c.TTL)
	attempt := state.Sending(l.cfg.Clock.Now())
	own, cancel := a.tryContext(ctx)
	defer cancel()
	g, err := l.backend.Take(own, c)
	if answered(err) {
		a.heard = l.cfg.Clock.Now()
	}
	if err != nil {
		return nil, a.failed(c, err)
	}
	if g.Lease == nil && !state.Confirm(l.cfg.Clock.Now(), attempt) || ctx.Err() != nil && !errors.Is(context.Cause(ctx), errWaitOver) {
		l.undo(c)
		return nil, fmt.Errorf("%w: the grant came too late", lockstep.ErrUncertain)
	}
	return l.hold(c, g, state), nil
}

// tryContext bounds one call of the backend. Where each lock has its own lease, an answer after
// more than TTL/3 leaves little of it. A session waits in the queue as long as the caller does;
// there, only a try has its own bound.
func (a *acquisition) tryContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ttl := a.locker.cfg.Capabilities.TTL
	switch {
	case a.locker.renewer != nil:
		return context.WithTimeout(ctx, lease.Interval(ttl))
	case a.cfg.Try():
		return context.WithTimeout(ctx, ttl)
	default:
		return context.WithCancel(ctx)
	}
}

// answered reports whether the store has just answered; this includes the end of a session while a
// claim waited in it.
func answered(err error) bool {
	return err == nil || errors.Is(err, lockstep.ErrBusy) || errors.Is(err, ErrQueued) || errors.Is(err, lockstep.ErrLost)
}

// failed undoes what a try may have left behind, and returns the error for the caller.
func (a *acquisition) failed(c *Claim, err error) error {
	queued := errors.Is(err, ErrQueued)
	if queued {
		a.locker.undo(c)
	}
	for _, certain := range []error{
		lockstep.ErrBusy, lockstep.ErrUnavailable, lockstep.ErrUnsupported, lockstep.ErrInvalid, lockstep.ErrQuota, lockstep.ErrMode,
	} {
		if queued || errors.Is(err, certain) {
			return err
		}
	}
	a.locker.undo(c)
	if errors.Is(err, lockstep.ErrUncertain) {
		return err
	}
	return fmt.Errorf("%w: %w", lockstep.ErrUncertain, err)
}
