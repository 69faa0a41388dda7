package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

const (
	// patience bounds the wait for what should happen at once, on a machine that is busy with other
	// tests.
	patience = 20 * time.Second
	// longTTL is longer than patience: what ends within patience did not end because of the lease.
	longTTL = 60 * time.Second
)

// acquire takes a lock within patience or fails the test.
func acquire(t *testing.T, l lockstep.Locker, name string, opts ...lockstep.AcquireOption) lockstep.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lock, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// release releases a lock, and fails the test if that is not certain.
func release(t *testing.T, l lockstep.Lock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
}

// nobody waits until the service knows of no claim on the name.
func nobody(t *testing.T, a *client.Admin, name string) {
	t.Helper()
	until(t, patience, name+" that is free and has no queue", func() bool {
		l, err := a.Lock(t.Context(), name, 0)
		return err == nil && len(l.GetHolders()) == 0 && len(l.GetWaiters()) == 0
	})
}

func TestARollingRestartLosesNoLock(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	var locks []lockstep.Lock
	for i := range 5 {
		k, _ := c.client(t, longTTL)
		for j := range 10 {
			locks = append(locks, acquire(t, k, fmt.Sprintf("jobs/%d-%d", i, j)))
		}
	}
	probe, _ := c.client(t, longTTL)
	for round := range 4 {
		name := c.leader()
		began := time.Now()
		c.stop(name)
		release(t, acquire(t, probe, "jobs/probe"))
		t.Logf("round %d: a lock was granted %v after the leader was told to stop", round, time.Since(began))
		c.start(name)
		time.Sleep(time.Second)
	}
	for _, l := range locks {
		if err := l.Check(); err != nil {
			t.Errorf("%s: %v", l.Name(), err)
		}
	}
	for _, l := range locks {
		release(t, l)
	}
}

func TestLostAnswersLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	admin := c.admin(t)
	t.Run("an acquire whose answer is lost takes its place once", func(t *testing.T) {
		t.Parallel()
		a, na := c.client(t, 10*time.Second)
		b, _ := c.client(t, 10*time.Second)
		for range 30 {
			na.setDeaf(true)
			got := make(chan lockstep.Lock, 1)
			go func() { got <- acquire(t, a, "lost/reply") }()
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
			na.setDeaf(false)
			na.reset()
			l := <-got
			next := acquireLater(t, b, "lost/reply")
			release(t, l)
			release(t, <-next)
		}
		nobody(t, admin, "lost/reply")
	})
	t.Run("an acquire that is given up while nothing comes back is undone", func(t *testing.T) {
		t.Parallel()
		a, na := c.client(t, 10*time.Second)
		release(t, acquire(t, a, "lost/unknown"))
		na.setDeaf(true)
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			if _, err := a.Acquire(ctx, "lost/unknown"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("err = %v, want the deadline", err)
			}
			cancel()
		}
		na.setDeaf(false)
		na.reset()
		nobody(t, admin, "lost/unknown")
		release(t, acquire(t, a, "lost/unknown"))
	})
	t.Run("a release whose answer is lost is uncertain, then certain", func(t *testing.T) {
		t.Parallel()
		a, na := c.client(t, 10*time.Second)
		l := acquire(t, a, "lost/release")
		na.setDeaf(true)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := l.Release(ctx); !errors.Is(err, lockstep.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("first release: %v, want ErrUncertain with the deadline", err)
		}
		if err := l.Check(); !errors.Is(err, lockstep.ErrReleased) {
			t.Errorf("check: %v, want ErrReleased", err)
		}
		na.setDeaf(false)
		na.reset()
		release(t, l)
		release(t, l)
		nobody(t, admin, "lost/release")
	})
	t.Run("waiters that give up while the connection breaks leave no ticket", func(t *testing.T) {
		t.Parallel()
		a, _ := c.client(t, 10*time.Second)
		b, nb := c.client(t, 10*time.Second)
		l := acquire(t, a, "lost/ticket")
		for range 5 {
			var all sync.WaitGroup
			for range 40 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					if k, err := b.Acquire(ctx, "lost/ticket"); err == nil {
						t.Error("granted while another holds it")
						release(t, k)
					}
				})
			}
			time.Sleep(time.Duration(95+rand.IntN(10)) * time.Millisecond)
			nb.reset()
			all.Wait()
		}
		until(t, patience, "queue without tickets", func() bool { return claims(t, a, "lost/ticket") == 1 })
		next := acquireLater(t, b, "lost/ticket")
		release(t, l)
		release(t, <-next)
		nobody(t, admin, "lost/ticket")
	})
}

// acquireLater starts an Acquire and waits until it is in the queue or has the lock.
func acquireLater(t *testing.T, k *client.Client, name string) <-chan lockstep.Lock {
	t.Helper()
	before := claims(t, k, name)
	got := make(chan lockstep.Lock, 1)
	go func() { got <- acquire(t, k, name) }()
	until(t, patience, "place in the queue", func() bool { return claims(t, k, name) > before })
	return got
}

func claims(t *testing.T, k *client.Client, name string) int {
	t.Helper()
	s, err := k.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return len(s.Holders) + len(s.Waiters)
}

func TestAnUnsteadyNetworkLosesNoLock(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	k, n := c.client(t, 2*suiteTTL)
	l := acquire(t, k, "jobs/steady")
	for end := time.Now().Add(3 * suiteTTL); time.Now().Before(end); {
		n.setCut(true) // up to one renewal in three is lost
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		n.setCut(false)
		time.Sleep(2 * time.Second)
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	release(t, l)
}

func TestAcquireThatIsGivenUpAtAnyMomentLeavesNoClaimAndNoGoroutine(t *testing.T) {
	c := startCluster(t, 1)
	k, _ := c.client(t, suiteTTL)
	admin := c.admin(t)
	release(t, acquire(t, k, "jobs/warm"))
	nobody(t, admin, "jobs/x")
	before := runtime.NumGoroutine()
	granted := 0
	for range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
		l, err := k.Acquire(ctx, "jobs/x")
		if err == nil {
			granted++
			release(t, l)
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	t.Logf("%d of 1000 were granted in time", granted)
	nobody(t, admin, "jobs/x")
	until(t, patience, "return to the goroutines of the start", func() bool { return runtime.NumGoroutine() <= before })
}

func TestAReleaseAtAnyMomentOfARenewalFreesTheLock(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	k, n := c.client(t, suiteTTL)
	for i := range 200 {
		l := acquire(t, k, "jobs/x")
		if i%20 == 0 {
			n.reset()
		}
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		release(t, l)
	}
	nobody(t, c.admin(t), "jobs/x")
}

func TestAWaiterLivesAsLongAsItsSession(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	a, _ := c.client(t, suiteTTL)
	b, _ := c.client(t, suiteTTL)
	l := acquire(t, a, "jobs/x")
	next := acquireLater(t, b, "jobs/x")
	time.Sleep(3 * suiteTTL)
	release(t, l)
	release(t, <-next)
}

func TestDeadWaitersDoNotAddUp(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	ttl := 2 * suiteTTL
	holder, _ := c.client(t, ttl)
	l := acquire(t, holder, "jobs/x")
	for i := range 3 { // the oldest waiters are cut off and never come back
		dead, n := c.client(t, ttl)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = dead.Acquire(ctx, "jobs/x") }()
		until(t, patience, "place in the queue", func() bool { return claims(t, holder, "jobs/x") == i+2 })
		n.setCut(true)
	}
	live, _ := c.client(t, ttl)
	next := acquireLater(t, live, "jobs/x")
	began := time.Now()
	release(t, l)
	release(t, <-next)
	if took, bound := time.Since(began), ttl+500*time.Millisecond+5*time.Second; took > bound {
		t.Errorf("the first live waiter had the lock after %v, want at most %v", took, bound)
	}
}

func TestAGrantWakesOneWaiterAndNoneIsForgotten(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	clients := make([]*client.Client, 4)
	for i := range clients {
		clients[i], _ = c.client(t, 5*time.Second)
	}
	var holders, most, grants atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range 64 {
		all.Go(func() {
			for range 10 {
				l := acquire(t, clients[i%len(clients)], "jobs/hot")
				most.Store(max(most.Load(), holders.Add(1)))
				grants.Add(1)
				holders.Add(-1)
				release(t, l)
			}
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d holders at once", most.Load())
	}
	t.Logf("%d hand-overs in %v", grants.Load(), time.Since(began))
}

func TestARevokedSessionEndsItsWaiters(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	a, _ := c.client(t, 5*time.Second)
	b, _ := c.client(t, longTTL)
	admin := c.admin(t)
	held := acquire(t, b, "jobs/other")
	l := acquire(t, a, "jobs/x")
	failed := make(chan error, 1)
	go func() {
		_, err := b.Acquire(t.Context(), "jobs/x")
		failed <- err
	}()
	until(t, patience, "place in the queue", func() bool { return claims(t, a, "jobs/x") == 2 })
	state, err := b.Inspect(t.Context(), "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := admin.RevokeSession(t.Context(), state.Waiters[0].Owner, client.Revocation{By: "ops", Reason: "stuck"}); err != nil || n == 0 {
		t.Fatalf("revoked %d, err %v", n, err)
	}
	select {
	case err := <-failed:
		loss, ok := errors.AsType[*lockstep.LossError](err)
		if !ok || loss.Reason != lockstep.Revoked {
			t.Errorf("the waiter got %v, want a revocation", err)
		}
	case <-time.After(patience):
		t.Error("the waiter of a revoked session waits on")
	}
	<-held.Context().Done()
	if loss, ok := errors.AsType[*lockstep.LossError](context.Cause(held.Context())); !ok || loss.Reason != lockstep.Revoked || loss.By != "ops" {
		t.Errorf("the holder got %v, want a revocation by ops", context.Cause(held.Context()))
	}
	if err := held.Release(t.Context()); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	nobody(t, admin, "jobs/other") // the holder has confirmed: nobody waits for a TTL
	release(t, l)
	release(t, acquire(t, b, "jobs/x")) // in a new session
}

func TestALockThatIsRevokedWhileTheStreamIsBrokenIsNotBelievedIn(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	a, n := c.client(t, longTTL)
	admin := c.admin(t)
	l := acquire(t, a, "jobs/x")
	n.setCut(true)
	if k, err := admin.RevokeLock(t.Context(), "jobs/x", client.Revocation{By: "ops", Reason: "test"}); err != nil || k != 1 {
		t.Fatalf("revoked %d, err %v", k, err)
	}
	n.setCut(false)
	select {
	case <-l.Context().Done():
	case <-time.After(patience): // well before its lease could end by itself
		t.Fatal("the holder believes on")
	}
	if loss, ok := errors.AsType[*lockstep.LossError](l.Check()); !ok || loss.Reason != lockstep.Revoked || loss.By != "ops" {
		t.Errorf("check: %v, want a revocation by ops", l.Check())
	}
	l.Release(t.Context())
	nobody(t, admin, "jobs/x") // it was confirmed: nobody waits for a TTL
}
