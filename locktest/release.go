package locktest

import (
	"context"
	"errors"

	"github.com/lockstep-dev/lockstep"
)

func releaseChecks() []check {
	return []check{
		{name: "a released lock is over and free", run: checkRelease},
		{name: "a release works on a dead context", run: checkReleaseDead},
		{name: "a second release touches nobody else's lock", run: checkSecondRelease},
		{name: "a lock ends when it was held too long", run: checkMaxHold},
		{name: "a waiter gets the lock when its holder releases it", run: checkHandOver},
	}
}

func checkRelease(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	e.held(lock)
	if names := lock.Names(); lock.Name() != e.name("x") || len(names) != 1 || names[0] != e.name("x") {
		e.Errorf("name %q, names %q, want %q", lock.Name(), names, e.name("x"))
	}
	for range 3 {
		e.release(lock)
	}
	if cause := e.over(lock, e.soon()); !errors.Is(cause, lockstep.ErrReleased) {
		e.Errorf("cause %v, want ErrReleased", cause)
	}
	if err := lock.Check(); !errors.Is(err, lockstep.ErrReleased) {
		e.Errorf("check: %v, want ErrReleased", err)
	}
	if left := lock.Remaining(); left != 0 {
		e.Errorf("%v remain of a released lock", left)
	}
	other, err := e.try(b, e.name("x"))
	if err != nil {
		e.Fatalf("a released lock is not free: %v", err)
	}
	e.release(other)
}

func checkReleaseDead(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	ctx, cancel := context.WithCancel(e.limit())
	cancel()
	if err := lock.Release(ctx); err != nil {
		e.Errorf("release: %v", err)
	}
	e.free(b, e.name("x"), e.soon())
}

func checkSecondRelease(e *env) {
	a, b := e.pair()
	first := e.acquire(a, e.name("x"))
	e.release(first)
	for _, next := range []lockstep.Locker{a, b} { // by the same owner, and by another
		second := e.acquire(next, e.name("x"))
		if err := first.Release(e.limit()); err != nil {
			e.Errorf("second release: %v, want nil", err)
		}
		e.held(second)
		e.busy(e.open(), e.name("x"))
		e.release(second)
	}
}

func checkMaxHold(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"), lockstep.WithMaxHold(lockstep.MinMaxHold))
	next := e.start(b, e.name("x"))
	e.lost(lock, lockstep.MinMaxHold+e.soon(), lockstep.MaxHoldReached)
	e.release(e.granted(next, e.soon()))
	if err := lock.Release(e.limit()); !errors.Is(err, lockstep.ErrLost) {
		e.Errorf("release: %v, want ErrLost", err)
	}
}

func checkHandOver(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	next := e.queue(b, e.name("x"), 1)
	e.waiting(next)
	e.release(lock)
	e.release(e.granted(next, e.soon()))
}
