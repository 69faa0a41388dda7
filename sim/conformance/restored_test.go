package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/server/backup"
	"github.com/lockstep-dev/lockstep/server/node"
)

// save makes a backup of the cluster.
func (c *cluster) save(ctx context.Context) (path string) {
	c.t.Helper()
	var b bytes.Buffer
	if err := c.admin(c.t).SaveSnapshot(ctx, &b); err != nil {
		c.t.Fatal(err)
	}
	path = filepath.Join(c.t.TempDir(), "backup")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// restore replaces the cluster, at the same addresses, by one that begins with the backup and
// grants at once.
func (c *cluster) restore(path string) {
	c.t.Helper()
	for _, name := range c.names {
		c.stop(name)
		c.dirs[name] = filepath.Join(c.t.TempDir(), name)
		b, err := backup.Open(path)
		if err == nil {
			_, err = node.Restore{Name: name, DataDir: c.dirs[name], Members: c.peers}.Run(b)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	for _, name := range c.names {
		c.start(name)
	}
	c.leader()
}

// A watched is what a watch yields: the number of an event, or an error.
type watched struct {
	number uint64
	err    error
}

func follow(ctx context.Context, admin *client.Admin, from client.Position) <-chan watched {
	seen := make(chan watched, 100)
	go func() {
		defer close(seen)
		for e, err := range admin.WatchFrom(ctx, "w/", from) {
			seen <- watched{e.GetNumber(), err}
		}
	}()
	return seen
}

// TestARestoreUnderThoseWhoWatchAndHold has a watch that is ahead of the backup, a watcher of one
// lock, and a client that holds a lock.
func TestARestoreUnderThoseWhoWatchAndHold(t *testing.T) {
	c := startCluster(t, 3)
	k, _ := c.client(t, 20*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	work := func(n int) {
		t.Helper()
		for range n {
			l, err := k.Acquire(ctx, "w/x")
			// It waited in the session that the restore revoked.
			if errors.Is(err, lockstep.ErrLost) {
				l, err = k.Acquire(ctx, "w/x")
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	work(3)
	path := c.save(ctx)
	work(7) // events 7 to 20
	admin := c.admin(t)
	seen := follow(ctx, admin, client.Position{Number: 18})
	for _, want := range []uint64{19, 20} {
		if got := <-seen; got.number != want {
			t.Fatalf("watched %+v, want event %d", got, want)
		}
	}
	old := admin.Cluster()
	held, err := k.Acquire(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	observer, _ := c.client(t, 5*time.Second)
	states := tokens(ctx, observer, "w/x")
	next(t, states, lockstep.Token(0))

	c.restore(path)
	work(5)
	var loss *lockstep.LossError
	// A node that does not know its new cluster yet says what the backup says: the restore has
	// revoked the session.
	if cause := context.Cause(held.Context()); !errors.As(cause, &loss) || loss.Reason != lockstep.RecordMissing && loss.By != "restore" {
		t.Errorf("the lock of the old cluster ended with %v", cause)
	}
	got := <-seen
	changed, ok := errors.AsType[*client.HistoryChangedError](got.err)
	if !ok || !changed.Live || changed.Was != (client.Position{Cluster: old, Number: 20}) || changed.Cluster != admin.Cluster() || changed.Cluster == old || changed.Oldest > 6 {
		t.Fatalf("after the restore: %+v %+v, want the change from event 20 of %s", got, changed, old)
	}
	for want := changed.Oldest + 1; want <= changed.Oldest+10; want++ {
		if got := <-seen; got.number != want {
			t.Fatalf("watched %+v, want event %d of the new history", got, want)
		}
	}
	// Otherwise nobody holds it, as before, which is not a change for a watcher that missed what
	// was in between.
	kept, err := k.Acquire(ctx, "w/x")
	if err != nil {
		t.Fatal(err)
	}
	for found := false; !found; { // states may be skipped, but not the last one
		select {
		case s := <-states:
			if err, bad := s.(error); bad {
				t.Fatal(err)
			}
			found = s == kept.Token()
		case <-time.After(30 * time.Second):
			t.Fatal("the watch of the lock says nothing of the new cluster")
		}
	}

	for name, from := range map[string]client.Position{"another cluster's": {Cluster: old, Number: 3}, "of the future": {Number: 999_999_999}} {
		got := <-follow(ctx, admin, from)
		if changed, ok := errors.AsType[*client.HistoryChangedError](got.err); !ok || changed.Live || !errors.Is(got.err, lockstep.ErrInvalid) || changed.Newest < 10 {
			t.Errorf("a position %s: %+v", name, got)
		}
	}
	cancel()
	for range seen {
	}
	for range states {
	}
}

func TestAWatchOfAClusterWithoutEventsLeavesNoneOut(t *testing.T) {
	c := startCluster(t, 1)
	admin := c.admin(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	events := make(chan watched, 100)
	go func() {
		defer close(events)
		for e, err := range admin.Watch(ctx, "", 0) {
			events <- watched{e.GetNumber(), err}
		}
	}()
	time.Sleep(500 * time.Millisecond) // the watch has begun
	c.restart()
	k, _ := c.client(t, 5*time.Second)
	if _, err := k.Acquire(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	if got := <-events; got.number != 1 || got.err != nil {
		t.Errorf("watched %+v, want event 1", got)
	}
	cancel()
	for range events {
	}
}
