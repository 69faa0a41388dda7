package redislock

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// until waits for something that should happen soon.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20s: %s", what)
		}
	}
}

// openHere returns a Locker on the test's own server.
func openHere(t *testing.T) (*Locker, *redis.Client) {
	t.Helper()
	s, err := redisserver.Start(redisserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.Address()})
	l, err := New(rdb, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close(context.Background())
		rdb.Close()
		s.Close()
	})
	return l, rdb
}

// The waiters would poll again in an hour, so only the wake-up can end their waits.
func TestEachReleaseWakesOneWaiterAndTheSubscriptionEnds(t *testing.T) {
	l, rdb := openHere(t)
	const waiters = 3
	woken := make(chan struct{}, waiters)
	for range waiters {
		go func() {
			l.backend.Wait(t.Context(), &locker.Claim{AcquireConfig: lockstep.AcquireConfig{Names: []string{"job"}}}, time.Hour)
			woken <- struct{}{}
		}()
	}
	key := l.Key("job")
	until(t, "all wait and are subscribed", func() bool {
		l.backend.hub.mu.Lock()
		defer l.backend.hub.mu.Unlock()
		c := l.backend.hub.mu.channels[key]
		return c != nil && len(c.waiters) == waiters && rdb.PubSubNumSub(t.Context(), key).Val()[key] == 1
	})
	for i := range waiters {
		k, err := l.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if len(woken) != 0 {
			t.Errorf("%d waiters are woken more than there were releases", len(woken))
		}
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-woken:
		case <-time.After(20 * time.Second):
			t.Fatalf("release %d wakes nobody", i+1)
		}
	}
	until(t, "nobody waits and nothing is subscribed", func() bool {
		return len(rdb.PubSubChannels(t.Context(), "*").Val()) == 0
	})
	l.backend.hub.mu.Lock()
	defer l.backend.hub.mu.Unlock()
	if l.backend.hub.mu.runs {
		t.Error("the goroutine of the subscription still runs")
	}
}

func TestAReleaseBetweenTwoTriesIsNotForgotten(t *testing.T) {
	l, _ := openHere(t)
	h := l.backend.hub
	woken, _ := h.join("x")
	h.leave("x", woken)
	h.released("x")
	if again, _ := h.join("x"); len(again) != 1 {
		t.Error("the next to wait is not told of the release")
	}
}

func TestAWakeUpThatIsNotUsedGoesToTheNext(t *testing.T) {
	l, _ := openHere(t)
	h := l.backend.hub
	first, _ := h.join("x")
	second, others := h.join("x")
	if others != 1 {
		t.Errorf("%d others wait, want 1", others)
	}
	h.released("x")
	h.leave("x", first)
	if len(second) != 1 {
		t.Error("the second waiter is not woken")
	}
}

func TestACrowdAsksNoMoreOftenThanAFew(t *testing.T) {
	const d = 500 * time.Millisecond
	if got := crowded(d, 19); got != d {
		t.Errorf("with 19 others %v, want %v", got, d)
	}
	if got := crowded(d, 40); got != 3*d {
		t.Errorf("with 40 others %v, want %v", got, 3*d)
	}
	for range 100 {
		if got := crowded(d, 1000); got < time.Second || got > 2*time.Second {
			t.Fatalf("with 1000 others %v, want 1s to 2s", got)
		}
	}
}
