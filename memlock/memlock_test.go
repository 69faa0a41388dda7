package memlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/memlock"
)

const ttl = 10 * time.Second

func acquire(t *testing.T, l lockstep.Locker, name string, opts ...lockstep.AcquireOption) lockstep.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// queue starts an Acquire and returns when it is waiting; the channel delivers its outcome.
func queue(t *testing.T, l lockstep.Locker, name string, opts ...lockstep.AcquireOption) <-chan lockstep.Lock {
	t.Helper()
	done := make(chan lockstep.Lock, 1)
	go func() {
		lock, err := l.Acquire(t.Context(), name, opts...)
		if err != nil {
			t.Errorf("acquire %s: %v", name, err)
		}
		done <- lock
	}()
	synctest.Wait()
	return done
}

func lossOf(t *testing.T, lock lockstep.Lock) lockstep.LossReason {
	t.Helper()
	loss, ok := errors.AsType[*lockstep.LossError](context.Cause(lock.Context()))
	if !ok {
		t.Fatalf("cause = %v, want a LossError", context.Cause(lock.Context()))
	}
	return loss.Reason
}

func TestHolderThatIsCutOffLearnsOfItsLossBeforeTheNextGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b := space.Locker(), space.Locker()
		held := acquire(t, a, "orders")
		next := queue(t, b, "orders")
		start := time.Now()
		a.Cut()

		<-held.Context().Done()
		if got, want := time.Since(start), ttl-lease.Margin(ttl); got != want {
			t.Errorf("lost after %v, want %v", got, want)
		}
		if got := lossOf(t, held); got != lockstep.LeaseEnded {
			t.Errorf("reason %v, want %v", got, lockstep.LeaseEnded)
		}
		granted := <-next
		if got, want := time.Since(start), ttl+memlock.Grace; got != want {
			t.Errorf("granted after %v, want %v", got, want)
		}
		if granted.Token() <= held.Token() {
			t.Errorf("token %d after %d", granted.Token(), held.Token())
		}
	})
}

func TestShortOutageLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		held := acquire(t, l, "orders")
		for range 5 {
			l.Cut()
			time.Sleep(ttl / 2)
			if held.Remaining() >= ttl/2 {
				t.Errorf("%v remain after %v without renewal", held.Remaining(), ttl/2)
			}
			l.Heal()
		}
		time.Sleep(2 * ttl)
		if err := held.Check(); err != nil {
			t.Errorf("lock is %v", err)
		}
	})
}

func TestAcquireContinuesInANewSessionAfterALongOutage(t *testing.T) {
	for name, outage := range map[string]time.Duration{
		"the holder's end only": ttl + memlock.Grace/2,
		"the space's end too":   3 * ttl,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space := memlock.NewSpace()
				a, b := space.Locker(), space.Locker()
				held := acquire(t, a, "orders")
				next := queue(t, b, "orders")
				b.Cut()
				time.Sleep(outage)
				b.Heal()
				if err := held.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				if lock := <-next; lock.Check() != nil {
					t.Errorf("granted lock is %v", lock.Check())
				}
			})
		})
	}
}

func TestMissedGrantIsNotHandedOutAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b := space.Locker(), space.Locker()
		held := acquire(t, a, "orders")
		next := queue(t, b, "orders")
		b.Cut()
		held.Release(t.Context())
		missed := state(t, a, "orders").Holders[0].Token
		time.Sleep(2 * ttl)
		if n := len(state(t, a, "orders").Holders); n != 0 {
			t.Fatalf("%d holders after the lease of the one that is cut off", n)
		}
		b.Heal()
		if lock := <-next; lock.Token() <= missed {
			t.Errorf("token %d was handed out, the missed one was %d", lock.Token(), missed)
		}
	})
}

func state(t *testing.T, l *memlock.Locker, name string) lockstep.State {
	t.Helper()
	s, err := l.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExpiredSessionLosesItsLocksAndGoesToTheEndOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b, c := space.Locker(), space.Locker(), space.Locker()
		other := acquire(t, a, "other")
		held := acquire(t, c, "orders")
		fromA, fromB := queue(t, a, "orders"), queue(t, b, "orders")
		a.Expire()
		if got := lossOf(t, other); got != lockstep.SessionExpired {
			t.Errorf("reason %v, want %v", got, lockstep.SessionExpired)
		}
		held.Release(t.Context())
		first := <-fromB
		first.Release(t.Context())
		<-fromA
	})
}

func TestRevokedLockIsFreeOnceItsHolderReleasesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b := space.Locker(), space.Locker()
		held := acquire(t, a, "orders")
		next := queue(t, b, "orders")
		if n := space.Revoke("orders", "alice"); n != 1 {
			t.Errorf("revoked %d, want 1", n)
		}
		<-held.Context().Done()
		if loss, _ := errors.AsType[*lockstep.LossError](held.Check()); loss.Reason != lockstep.Revoked || loss.By != "alice" {
			t.Errorf("loss = %+v", loss)
		}
		if _, err := lockstep.TryAcquire(t.Context(), b, "orders"); !errors.Is(err, lockstep.ErrBusy) {
			t.Errorf("before the holder confirms: %v, want ErrBusy", err)
		}
		if err := held.Release(t.Context()); !errors.Is(err, lockstep.ErrLost) {
			t.Errorf("release = %v, want ErrLost", err)
		}
		<-next
	})
}

func TestRevokedLockIsFreeAfterTheLeaseWhenItsHolderIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		acquire(t, space.Locker(), "orders")
		start := time.Now()
		space.Revoke("orders", "alice")
		acquire(t, space.Locker(), "orders")
		if got, want := time.Since(start), ttl+memlock.Grace; got != want {
			t.Errorf("granted after %v, want %v", got, want)
		}
	})
}

func TestLockDelayFollowsAnExpiryButNotARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b := space.Locker(), space.Locker()
		delay := lockstep.WithLockDelay(time.Minute)
		acquire(t, a, "orders", delay).Release(t.Context())
		start := time.Now()
		lost := acquire(t, b, "orders", delay)
		b.Expire()
		lost.Release(t.Context())
		acquire(t, a, "orders")
		if got := time.Since(start); got != time.Minute {
			t.Errorf("granted after %v, want %v", got, time.Minute)
		}
	})
}

func TestDeletedRecordIsALossAndTokensKeepRising(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b := space.Locker(), space.Locker()
		held := acquire(t, a, "orders")
		next := queue(t, b, "orders")
		space.Delete("orders")
		if got := lossOf(t, held); got != lockstep.RecordMissing {
			t.Errorf("reason %v, want %v", got, lockstep.RecordMissing)
		}
		if lock := <-next; lock.Token() <= held.Token() {
			t.Errorf("token %d after %d", lock.Token(), held.Token())
		}
	})
}

func TestReleaseWhileCutOffIsUncertainAndUndoneWhenHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b := space.Locker(), space.Locker()
		held := acquire(t, a, "orders")
		next := queue(t, b, "orders")
		a.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := held.Release(ctx); !errors.Is(err, lockstep.ErrUncertain) {
			t.Errorf("release = %v, want ErrUncertain", err)
		}
		a.Heal()
		<-next
		if err := held.Release(ctx); err != nil {
			t.Errorf("second release = %v", err)
		}
	})
}

func TestReleaseWithADoneContextHasFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		held := acquire(t, l, "orders")
		l.Cut()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := held.Release(ctx); !errors.Is(err, lockstep.ErrUncertain) {
			t.Errorf("release = %v, want ErrUncertain", err)
		}
		if got := time.Since(start); got != 5*time.Second {
			t.Errorf("took %v, want 5s", got)
		}
	})
}

func TestAcquireWhileCutOffEndsWithItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		l.Cut()
		start := time.Now()
		_, err := l.Acquire(t.Context(), "orders", lockstep.WithWait(time.Second))
		if !errors.Is(err, lockstep.ErrUnavailable) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v, want ErrUnavailable after 1s", time.Since(start), err)
		}
	})
}

func TestWaitingClaimOnManyNamesBlocksItsFreeNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		held := acquire(t, l, "db/a")
		both := queue(t, l, "db/a", lockstep.WithAlso("db/b"))
		if _, err := lockstep.TryAcquire(t.Context(), l, "db/b"); !errors.Is(err, lockstep.ErrBusy) {
			t.Errorf("free name of a waiting claim: %v, want ErrBusy", err)
		}
		held.Release(t.Context())
		if got, want := (<-both).Names(), []string{"db/a", "db/b"}; !slices.Equal(got, want) {
			t.Errorf("names %v, want %v", got, want)
		}
	})
}

func TestCloseEndsWaitsAndFreesLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b := space.Locker(), space.Locker()
		held := acquire(t, b, "orders")
		mine := acquire(t, a, "other")
		waits := make(chan error, 1)
		go func() {
			_, err := a.Acquire(t.Context(), "orders")
			waits <- err
		}()
		synctest.Wait()
		for range 2 {
			if err := a.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if err := <-waits; !errors.Is(err, lockstep.ErrClosed) {
			t.Errorf("waiting acquire = %v, want ErrClosed", err)
		}
		if err := mine.Check(); !errors.Is(err, lockstep.ErrReleased) {
			t.Errorf("held lock is %v, want ErrReleased", err)
		}
		acquire(t, b, "other")
		if s := state(t, b, "orders"); len(s.Waiters) != 0 || s.Holders[0].Token != held.Token() {
			t.Errorf("state = %+v", s)
		}
	})
}

func TestMaxHoldEndsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		held := acquire(t, l, "orders", lockstep.WithMaxHold(3*time.Second))
		start := time.Now()
		acquire(t, l, "orders")
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("free after %v, want 3s", got)
		}
		if got := lossOf(t, held); got != lockstep.MaxHoldReached {
			t.Errorf("reason %v", got)
		}
	})
}

// The context of lockstep.Do checks its lock, and so uses the space, whenever its Err is called.
func TestTheContextOfOneLockServesTheNext(t *testing.T) {
	l := memlock.New()
	err := lockstep.Do(t.Context(), l, "outer", func(ctx context.Context, _ lockstep.Token) error {
		if s, err := l.Inspect(ctx, "outer"); err != nil || len(s.Holders) != 1 {
			t.Errorf("inspect = %v, %v", s, err)
		}
		return lockstep.Do(ctx, l, "inner", func(context.Context, lockstep.Token) error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
}
