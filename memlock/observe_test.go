package memlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

func TestDetachedLockIsHeldUntilItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b := space.Locker(), space.Locker()
		held := acquire(t, a, "orders")
		handle, err := a.Detach(t.Context(), held)
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Release(t.Context()); !errors.Is(err, lockstep.ErrDetached) {
			t.Errorf("release = %v, want ErrDetached", err)
		}
		a.Close(t.Context())
		time.Sleep(ttl / 2)
		again, err := b.Attach(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() != held.Token() {
			t.Errorf("token %d, want %d", again.Token(), held.Token())
		}
		time.Sleep(2 * ttl)
		if err := again.Check(); err != nil {
			t.Errorf("attached lock is %v", err)
		}
		if second, _ := b.Detach(t.Context(), again); second != handle {
			t.Error("a different handle for the same lock")
		}
		time.Sleep(2 * ttl)
		if _, err := b.Attach(t.Context(), handle); !errors.Is(err, lockstep.ErrLost) {
			t.Errorf("attach after the end of the lease = %v, want ErrLost", err)
		}
	})
}

func TestWatchYieldsTheCurrentStateAndEachNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var held lockstep.Lock
		var seen []int
		for s, err := range l.Watch(ctx, "orders") {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, len(s.Holders))
			switch len(seen) {
			case 1:
				held = acquire(t, l, "orders")
			case 2:
				held.Release(t.Context())
			case 3:
				cancel()
			}
		}
		if !slices.Equal(seen, []int{0, 1, 0}) {
			t.Errorf("holders %v, want 0 1 0", seen)
		}
	})
}
