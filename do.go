package lockstep

import (
	"context"
	"errors"
)

// Do runs f while it holds the named lock. The ctx of f is done when the lock is
// over or when ctx is; [context.Cause] tells why, and its Err checks the lock by
// the suspend-proof clock as [Lock.Check] does. ctx bounds the waiting too.
// Whatever f does, with a panic too, the lock is given back, also when ctx is done
// by then.
//
// The error of Do joins what went wrong, each of it found by errors.Is: that of
// Acquire, in which case f was not called; that of f; [ErrLost] when the lock was
// lost before f returned, even if f did not notice; [ErrUncertain] when the lock
// could not be confirmed to be free. Nil means that f returned nil, that the lock
// was held all the time by the local clock, and that it is free.
func Do(ctx context.Context, l Locker, name string, f func(context.Context, Token) error, opts ...AcquireOption) (err error) {
	lock, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	work, stop := WithLock(ctx, lock)
	defer func() { // deferred for the sake of panics: f may be in the hands of a test or an HTTP handler
		err = joinLoss(err, lock)
		stop()
		err = joinRelease(err, lock.Release(ctx))
	}()
	return f(work, lock.Token())
}

// WithLock returns a context for work under the lock: a child of ctx that is done when the lock is
// over too. [Lock.Context] alone knows nothing of the caller's ctx, so that work would outlive a
// shutdown. [context.Cause] tells why it is done, and its Err checks the lock by the suspend-proof
// clock, as [Lock.Check] does. Call stop when the work is done: it ends the context and frees what
// it uses. It does not release the lock.
//
// [Do] does this, and gives the lock back.
func WithLock(ctx context.Context, lock Lock) (work context.Context, stop context.CancelFunc) {
	both, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })
	return workContext{both, lock, cancel}, func() {
		unhook()
		cancel(nil)
	}
}

// A workContext is what WithLock returns. Contexts are told of a loss by goroutines and
// timers, which can be late; who asks just before a write wants the present state.
type workContext struct {
	context.Context
	lock   Lock
	cancel context.CancelCauseFunc
}

func (c workContext) Err() error {
	if loss := c.lock.Check(); loss != nil {
		c.cancel(loss)
	}
	return c.Context.Err()
}

// joinLoss adds the loss of the lock unless f has returned it.
func joinLoss(err error, lock Lock) error {
	loss := lock.Check()
	if loss == nil || errors.Is(err, loss) {
		return err
	}
	return errors.Join(err, &OpError{Op: "hold", Lock: lock.Name(), Err: loss})
}

// joinRelease adds the error of Release unless it is the loss that joinLoss found.
func joinRelease(err, release error) error {
	if release == nil || errors.Is(release, ErrLost) && errors.Is(err, ErrLost) {
		return err
	}
	return errors.Join(err, release)
}
