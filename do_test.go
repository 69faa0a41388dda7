package lockstep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

func isFree(t *testing.T, l lockstep.Locker, name string) {
	t.Helper()
	lock, err := lockstep.TryAcquire(t.Context(), l, name)
	if err != nil {
		t.Errorf("%s is not free: %v", name, err)
		return
	}
	lock.Release(t.Context())
}

func TestDoHoldsTheLockMeanwhile(t *testing.T) {
	l := memlock.New()
	err := lockstep.Do(t.Context(), l, "orders", func(ctx context.Context, token lockstep.Token) error {
		if token == 0 || ctx.Err() != nil {
			t.Errorf("token %d, context %v", token, ctx.Err())
		}
		if _, err := lockstep.TryAcquire(ctx, l, "orders"); !errors.Is(err, lockstep.ErrBusy) {
			t.Errorf("try inside: %v, want ErrBusy", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	isFree(t, l, "orders")
}

func TestDoReturnsTheErrorOfItsFunction(t *testing.T) {
	l, broken := memlock.New(), errors.New("broken")
	err := lockstep.Do(t.Context(), l, "orders", func(context.Context, lockstep.Token) error { return broken })
	if err != broken {
		t.Errorf("err = %v, want %v", err, broken)
	}
	isFree(t, l, "orders")
}

func TestDoWithoutTheLockCallsNothing(t *testing.T) {
	l := memlock.New()
	held, err := l.Acquire(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	err = lockstep.Do(t.Context(), l, "orders", func(context.Context, lockstep.Token) error {
		t.Error("called")
		return nil
	}, lockstep.WithWait(0))
	if !errors.Is(err, lockstep.ErrBusy) {
		t.Errorf("err = %v, want ErrBusy", err)
	}
	if held.Check() != nil {
		t.Error("the other's lock is over")
	}
}

func TestDoTellsItsFunctionAndItsCallerOfALoss(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context) error{
		"which passes the cause on": func(ctx context.Context) error { return context.Cause(ctx) },
		"which says nothing":        func(context.Context) error { return nil },
		"which fails":               func(ctx context.Context) error { return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := memlock.New()
				err := lockstep.Do(t.Context(), l, "orders", func(ctx context.Context, _ lockstep.Token) error {
					l.Space().Revoke("orders", "alice")
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), lockstep.ErrLost) {
						t.Errorf("cause %v, want ErrLost", context.Cause(ctx))
					}
					return f(ctx)
				})
				loss, ok := errors.AsType[*lockstep.LossError](err)
				if !ok || loss.Reason != lockstep.Revoked || loss.By != "alice" {
					t.Errorf("err = %v, want a loss by alice", err)
				}
				if name == "which fails" && !errors.Is(err, context.Canceled) {
					t.Errorf("err = %v hides the error of the function", err)
				}
				isFree(t, l, "orders")
			})
		})
	}
}

// The work's context is checked right after the loss, before any goroutine could have propagated
// it.
func TestDoTellsALossToWhoAsksNow(t *testing.T) {
	l := memlock.New()
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	err := lockstep.Do(ctx, l, "orders", func(ctx context.Context, _ lockstep.Token) error {
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		l.Expire()
		if ctx.Err() == nil || child.Err() == nil || !errors.Is(context.Cause(child), lockstep.ErrLost) {
			t.Errorf("err %v, of a child %v with cause %v", ctx.Err(), child.Err(), context.Cause(child))
		}
		if ctx.Value(key{}) != "value" {
			t.Error("the values of the caller's context are gone")
		}
		return nil
	})
	if !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("err = %v, want ErrLost", err)
	}
}

func TestDoReleasesWhenItsContextIsDone(t *testing.T) {
	l := memlock.New()
	ctx, cancel := context.WithCancel(t.Context())
	err := lockstep.Do(ctx, l, "orders", func(ctx context.Context, _ lockstep.Token) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, lockstep.ErrLost) {
		t.Errorf("err = %v, want context.Canceled alone", err)
	}
	isFree(t, l, "orders")
}

func TestDoReleasesWhenItsFunctionPanics(t *testing.T) {
	l := memlock.New()
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v, want boom", got)
			}
		}()
		lockstep.Do(t.Context(), l, "orders", func(context.Context, lockstep.Token) error { panic("boom") })
	}()
	isFree(t, l, "orders")
}

func TestDoSaysWhenTheLockMayStillBeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := lockstep.Do(ctx, l, "orders", func(context.Context, lockstep.Token) error {
			l.Cut()
			return nil
		})
		if !errors.Is(err, lockstep.ErrUncertain) {
			t.Errorf("err = %v, want ErrUncertain", err)
		}
		l.Heal()
		isFree(t, l, "orders")
	})
}

func TestTryAcquireLeavesTheCallersOptionsAlone(t *testing.T) {
	l := memlock.New()
	opts := make([]lockstep.AcquireOption, 0, 4)
	for range 2 {
		lock, err := lockstep.TryAcquire(t.Context(), l, "orders", opts...)
		if err != nil {
			t.Fatal(err)
		}
		lock.Release(t.Context())
	}
	if opts[:1][0] != nil {
		t.Error("an option was written behind the end of the caller's slice")
	}
}

func TestWorkUnderALockEndsWithTheCallerAndWithTheLock(t *testing.T) {
	space := memlock.NewSpace()
	acquire := func(ctx context.Context) lockstep.Lock {
		lock, err := space.Locker().Acquire(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}

	shutdown := errors.New("shutdown")
	ctx, cancel := context.WithCancelCause(t.Context())
	lock := acquire(ctx)
	work, stop := lockstep.WithLock(ctx, lock)
	cancel(shutdown)
	<-work.Done()
	if cause := context.Cause(work); cause != shutdown || lock.Check() != nil {
		t.Errorf("cause %v, lock %v: want the caller's cause, and the lock held on", cause, lock.Check())
	}
	stop()
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}

	lock = acquire(t.Context())
	work, stop = lockstep.WithLock(t.Context(), lock)
	defer stop()
	if work.Err() != nil {
		t.Errorf("the work ends at once: %v", work.Err())
	}
	space.Revoke("orders", "alice")
	if work.Err() == nil {
		t.Error("a lock that is lost is not seen by Err")
	}
	<-work.Done()
	if cause := context.Cause(work); !errors.Is(cause, lockstep.ErrLost) {
		t.Errorf("cause %v, want ErrLost", cause)
	}
}

func TestTheContextOfWorkIsOverAfterStopWhileTheLockIsHeld(t *testing.T) {
	lock, err := memlock.New().Acquire(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	work, stop := lockstep.WithLock(t.Context(), lock)
	stop()
	if work.Err() == nil || lock.Check() != nil {
		t.Errorf("context %v, lock %v: want the context over and the lock held", work.Err(), lock.Check())
	}
}
