package lockstep

import (
	"context"
	"errors"
)

// Do runs f while it holds the named lock. The ctx passed to f is done when the lock is over or
// when ctx is; [context.Cause] reports why, and its Err checks the lock against the suspend-proof
// clock as [Lock.Check] does. ctx also bounds the wait for the lock. The lock is released whatever
// f does, even if it panics or ctx is already done.
//
// The error of Do joins everything that went wrong; errors.Is finds each part: the error of
// Acquire, in which case f was not called; the error of f; [ErrLost] if the lock was lost before f
// returned, even if f did not notice; [ErrUncertain] if the lock could not be confirmed to be free.
// Nil means that f returned nil, that the lock was held throughout by the local clock, and that it
// is free.
func Do(ctx context.Context, l Locker, name string, f func(context.Context, Token) error, opts ...AcquireOption) (err error) {
	lock, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	work, stop := WithLock(ctx, lock)
	defer func() { // deferred in case of a panic: f may run inside a test or an HTTP handler
		err = joinLoss(err, lock)
		stop()
		err = joinRelease(err, lock.Release(ctx))
	}()
	return f(work, lock.Token())
}

// WithLock returns a context for work under the lock: a child of ctx that is also done when the
// lock is over. [Lock.Context] alone does not follow the caller's ctx, so work under it would
// outlive a shutdown. [context.Cause] reports why it is done, and its Err checks the lock against
// the suspend-proof clock, as [Lock.Check] does. Call stop when the work is done: it cancels the
// context and frees its resources. It does not release the lock.
//
// [Do] does this and also releases the lock.
func WithLock(ctx context.Context, lock Lock) (work context.Context, stop context.CancelFunc) {
	both, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })
	return workContext{both, lock, cancel}, func() {
		unhook()
		cancel(nil)
	}
}

// A workContext is what WithLock returns. Goroutines and timers cancel a context after a loss, and
// they can be late; a caller that asks just before a write needs the current state.
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

// joinLoss adds the loss of the lock unless f already returned it.
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
