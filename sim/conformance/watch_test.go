package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

// tokens sends the token of each state's holder, 0 for none, and then the watch's error, if any.
func tokens(ctx context.Context, k *client.Client, name string) <-chan any {
	seen := make(chan any)
	go func() {
		defer close(seen)
		for s, err := range k.Watch(ctx, name) {
			switch {
			case err != nil:
				seen <- err
			case len(s.Holders) == 0:
				seen <- lockstep.Token(0)
			default:
				seen <- s.Holders[0].Token
			}
		}
	}()
	return seen
}

// next expects this as the next state.
func next(t *testing.T, seen <-chan any, want any) {
	t.Helper()
	select {
	case got := <-seen:
		if got != want {
			t.Fatalf("watched %v, want %v", got, want)
		}
	case <-time.After(60 * time.Second):
		t.Fatalf("watched nothing, want %v", want)
	}
}

func TestALockIsWatchedOverTheRestartOfEveryNode(t *testing.T) {
	c := startCluster(t, 3)
	observer, _ := c.client(t, 5*time.Second)
	k, _ := c.client(t, longTTL) // a lock stays held while a node restarts
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	seen := tokens(ctx, observer, "w/x") // of a cluster that has no events yet
	next(t, seen, lockstep.Token(0))
	work := func() {
		t.Helper()
		l, err := k.Acquire(ctx, "w/x")
		if err != nil {
			t.Fatal(err)
		}
		next(t, seen, l.Token())
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		next(t, seen, lockstep.Token(0))
	}
	for _, name := range c.names {
		work()
		other, err := k.Acquire(ctx, "w/x/other") // another name with the same prefix
		if err != nil {
			t.Fatal(err)
		}
		c.stop(name)
		c.leader()
		work()
		c.start(name)
		if err := other.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if got, open := <-seen; open {
		t.Errorf("after the end of the context: %v", got)
	}
}

// The observer is away while leaders come and go: it misses them, and gets the state that is true
// then.
func TestASlowWatcherSeesTheLastState(t *testing.T) {
	c := startCluster(t, 1)
	observer, _ := c.client(t, 5*time.Second)
	k, _ := c.client(t, 5*time.Second)
	seen := tokens(t.Context(), observer, "x")
	next(t, seen, lockstep.Token(0))
	first, err := k.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	next(t, seen, first.Token())
	var last lockstep.Lock
	err = first.Release(t.Context())
	for i := 0; i < 100 && err == nil; i++ {
		if last, err = k.Acquire(t.Context(), "x"); err == nil && i < 99 {
			err = last.Release(t.Context())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	states := 0
	for got := range seen {
		if states++; got == last.Token() {
			break
		}
	}
	t.Logf("%d states of 200 were yielded", states)
	if states > 10 {
		t.Errorf("a slow watcher was shown %d old states", states)
	}
	if err := observer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _ := (<-seen).(error)
	if !errors.Is(got, lockstep.ErrClosed) {
		t.Errorf("watched %v after Close, want ErrClosed", got)
	}
}

func TestAWatchSeesARevokedLockUntilItsHolderHasStopped(t *testing.T) {
	c := startCluster(t, 1)
	k, _ := c.client(t, 5*time.Second)
	l, err := k.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	revoked, free := false, false
	for s, err := range k.Watch(ctx, "x") {
		if err != nil {
			t.Fatal(err)
		}
		if free = len(s.Holders) == 0; free {
			break
		}
		if !revoked {
			revoked = true
			if _, err := c.admin(t).RevokeLock(ctx, "x", client.Revocation{By: "alice", Reason: fmt.Sprint(s.Name, " is stuck")}); err != nil {
				t.Fatal(err)
			}
			<-l.Context().Done()
			l.Release(ctx) // the acknowledgement; the loss is already known
		}
	}
	if !free {
		t.Error("the end of the revoked lock was never seen")
	}
}
