//go:build acceptance

package faulttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/sim/faulttest"
)

const (
	sessions        = 10
	locksPerSession = 2_000
	waiters         = 2_000
)

func TestManyLocksAndWaiters(t *testing.T) {
	cluster := faulttest.Start(t, 5)
	holdLocks(t, cluster)
	queueWaiters(t, cluster)
	checkListing(t, cluster)
	checkQueue(t, cluster)
	checkRestart(t, cluster)
}

func holdLocks(t *testing.T, cluster *faulttest.Cluster) {
	begin := time.Now()
	var all errgroup.Group
	for s := range sessions {
		c := newClient(t, client.Config{Endpoints: cluster.Endpoints(), TTL: 120 * time.Second})
		var g errgroup.Group
		g.SetLimit(200)
		all.Go(func() error {
			for l := range locksPerSession {
				g.Go(func() error {
					_, err := c.Acquire(t.Context(), fmt.Sprintf("many/%02d/%04d", s, l), lockstep.WithWait(time.Minute))
					return err
				})
			}
			return g.Wait()
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d locks held by %d sessions after %v", sessions*locksPerSession, sessions, time.Since(begin).Round(time.Millisecond))
}

// queueWaiters queues waiters, whose numbers in the session then rise, and leaves them there.
func queueWaiters(t *testing.T, cluster *faulttest.Cluster) {
	begin := time.Now()
	admin, err := client.NewAdmin(client.Config{Endpoints: cluster.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	c := newClient(t, client.Config{Endpoints: cluster.Endpoints(), TTL: 120 * time.Second})
	if _, err := c.Acquire(t.Context(), "queue/one"); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	for i := range waiters {
		group.Go(func() {
			_, _ = c.Acquire(t.Context(), "queue/one", lockstep.WithMetadata(map[string]string{"number": strconv.Itoa(i)}))
		})
		if i%100 == 99 {
			waitForWaiters(t, admin, i+1)
		}
	}
	t.Logf("%d waiters after %v", waiters, time.Since(begin).Round(time.Millisecond))
}

func waitForWaiters(t *testing.T, admin *client.Admin, count int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		lock, err := admin.Lock(t.Context(), "queue/one", 1)
		if err == nil && lock.GetWaiterCount() >= uint64(count) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("there were never %d waiters", count)
}

func checkListing(t *testing.T, cluster *faulttest.Cluster) {
	begin := time.Now()
	out, err := cluster.Command("ls", "many", "-o", "json").Output()
	if err != nil {
		t.Fatalf("ls: %v", err)
	}
	names := regexp.MustCompile(`"many/\d\d/\d\d\d\d"`).FindAll(out, -1)
	if len(names) != sessions*locksPerSession {
		t.Fatalf("ls printed %d locks, want %d", len(names), sessions*locksPerSession)
	}
	for i := 1; i < len(names); i++ {
		if bytes.Compare(names[i-1], names[i]) >= 0 {
			t.Fatalf("ls printed %s before %s", names[i-1], names[i])
		}
	}
	t.Logf("ls printed %d locks in order in %v", len(names), time.Since(begin).Round(time.Millisecond))
}

func checkQueue(t *testing.T, cluster *faulttest.Cluster) {
	out, err := cluster.Command("show", "queue/one", "--waiters", strconv.Itoa(waiters), "-o", "json").Output()
	if err != nil {
		t.Fatalf("show: %v", err)
	}
	var shown struct {
		Waiters []struct {
			Seq uint64 `json:"seq"`
		} `json:"waiters"`
	}
	if err := json.Unmarshal(out, &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown.Waiters) != waiters {
		t.Fatalf("show printed %d waiters, want %d", len(shown.Waiters), waiters)
	}
	for i := 1; i < waiters; i++ {
		if shown.Waiters[i-1].Seq >= shown.Waiters[i].Seq {
			t.Fatalf("waiter %d has seq %d, the next %d", i, shown.Waiters[i-1].Seq, shown.Waiters[i].Seq)
		}
	}
}

// checkRestart kills all nodes and measures the time until the state is served again.
func checkRestart(t *testing.T, cluster *faulttest.Cluster) {
	cluster.KillAll()
	begin := time.Now()
	for i := range 5 {
		cluster.StartNode(i)
	}
	admin, err := client.NewAdmin(client.Config{Endpoints: cluster.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for {
		lock, err := admin.Lock(t.Context(), "queue/one", waiters)
		if err == nil {
			if len(lock.GetWaiters()) != waiters {
				t.Errorf("%d waiters after the restart, want %d", len(lock.GetWaiters()), waiters)
			}
			break
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("not serving: %v", err)
		}
	}
	took := time.Since(begin)
	t.Logf("restart of all five until served: %v", took.Round(time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("the restart took %v, the bound is 5s", took)
	}
}

const million = 1_000_000

// TestAMillionNames takes and releases a million names once each. The history's rings are filled
// first: they are bounded, and hold more after the first names than before.
func TestAMillionNames(t *testing.T) {
	cluster := faulttest.Start(t, 3)
	takeAndFree(t, cluster, "warm", 600_000)
	before := measure(t, cluster)
	begin := time.Now()
	takeAndFree(t, cluster, "names", million)
	t.Logf("%d names taken and freed in %v", million, time.Since(begin).Round(time.Second))
	after := measure(t, cluster)
	for i := range before {
		t.Logf("n%d: heap %.1f -> %.1f MiB, snapshot %.1f -> %.1f MiB", i+1,
			mib(before[i].heap), mib(after[i].heap), mib(before[i].snapshot), mib(after[i].snapshot))
		if grew(before[i].heap, after[i].heap) {
			t.Errorf("n%d: the heap grew by more than 10 %%", i+1)
		}
		if grew(before[i].snapshot, after[i].snapshot) {
			t.Errorf("n%d: the snapshot grew by more than 10 %%", i+1)
		}
	}
}

func grew(before, after int64) bool { return after > before+before/10 }

func takeAndFree(t *testing.T, cluster *faulttest.Cluster, prefix string, count int) {
	t.Helper()
	var g errgroup.Group
	const clients, abreast = 16, 64
	for w := range clients {
		c, err := client.New(client.Config{Endpoints: cluster.Endpoints()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background()) // otherwise their connections would be measured
		for a := range abreast {
			g.Go(func() error {
				for i := w*abreast + a; i < count; i += clients * abreast {
					lock, err := c.Acquire(t.Context(), fmt.Sprintf("%s/%d", prefix, i))
					if err != nil {
						return err
					}
					if err := lock.Release(t.Context()); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

type footprint struct{ heap, snapshot int64 }

// measure reads the size of each node's heap after a collection, and of its newest snapshot, just
// after that snapshot: until the next one, the log in memory grows by 32 MiB, whatever happens to
// the names.
func measure(t *testing.T, cluster *faulttest.Cluster) []footprint {
	t.Helper()
	awaitSnapshots(t, cluster)
	var all []footprint
	for i := range 3 {
		all = append(all, footprint{heap: heapOf(t, cluster, i), snapshot: newestSnapshot(t, cluster.DataDir(i)).Size()})
	}
	return all
}

// awaitSnapshots takes and releases more names until each node has written another snapshot.
func awaitSnapshots(t *testing.T, cluster *faulttest.Cluster) {
	t.Helper()
	var before [3]time.Time
	for i := range before {
		before[i] = newestSnapshot(t, cluster.DataDir(i)).ModTime()
	}
	for round := range 200 {
		missing := 0
		for i := range before {
			if !newestSnapshot(t, cluster.DataDir(i)).ModTime().After(before[i]) {
				missing++
			}
		}
		if missing == 0 {
			return
		}
		takeAndFree(t, cluster, fmt.Sprintf("settle/%d/%d", time.Now().UnixNano(), round), 5_000)
	}
	t.Fatal("a node wrote no further snapshot")
}

func newestSnapshot(t *testing.T, dir string) os.FileInfo {
	t.Helper()
	var newest os.FileInfo
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && filepath.Ext(path) == ".snap" && (newest == nil || info.ModTime().After(newest.ModTime())) {
			newest = info
		}
		return nil
	})
	if err != nil || newest == nil {
		t.Fatalf("no snapshot in %s: %v", dir, err)
	}
	return newest
}
