package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
)

// smallSnapshots makes a snapshot every 20 entries, and keeps little log before it.
func smallSnapshots(cfg *Config) {
	cfg.tune = func(r *replica.Config) { r.SnapshotEntries, r.SnapshotTail, r.SnapshotLag = 20, 1, 1 }
}

func TestAFarBehindNodeCatchesUpByAStreamedSnapshot(t *testing.T) {
	c := newCluster(t, 3, smallSnapshots)
	leader := c.leader()
	cl := c.connect(leader)
	cl.open()
	away := "n1"
	if leader.cfg.Name == away {
		away = "n2"
	}
	c.stop(away)
	behind := leader.Status().Commit
	for i := uint64(1); i <= 60; i++ {
		cl.acquire(i, fmt.Sprintf("jobs/%d", i))
	}
	c.eventually("the log the node needs is gone", func() error {
		if s := leader.Status(); s.Replica.Snapshot < behind+20 {
			return fmt.Errorf("snapshot at %d", s.Replica.Snapshot)
		}
		return nil
	})
	n := c.start(away)
	c.eventually("the node has caught up", func() error { return sameApplied(c) })
	if got, want := n.Status().Counts, leader.Status().Counts; got != want {
		t.Errorf("its state has %+v, the leader's %+v", got, want)
	}
	if n.Status().Replica.Snapshot <= behind {
		t.Errorf("it caught up without a snapshot: %+v", n.Status().Replica)
	}

	c.stop(away) // and starts from the snapshot that it received
	c.start(away)
	c.eventually("the node has caught up again", func() error { return sameApplied(c) })
}

func TestAFarBehindNodeCatchesUpAlthoughTheLeadersSnapshotsAreGone(t *testing.T) {
	c := newCluster(t, 3, smallSnapshots)
	leader := c.lead("n1")
	cl := c.connect(leader)
	cl.open()
	c.stop("n2")
	behind := leader.Status().Commit
	for i := uint64(1); i <= 60; i++ {
		cl.acquire(i, fmt.Sprintf("jobs/%d", i))
	}
	c.eventually("the log the node needs is gone, and no snapshot is under way", func() error {
		if s := leader.Status(); s.Replica.Snapshot < behind+20 || s.Replica.Snapshot+20 <= s.Applied {
			return fmt.Errorf("snapshot at %d, applied %d", s.Replica.Snapshot, s.Applied)
		}
		return nil
	})
	files, err := filepath.Glob(filepath.Join(c.dir, "n1/snapshots/*.snap"))
	if err != nil || len(files) == 0 {
		t.Fatalf("snapshot files: %v %v", files, err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	c.start("n2")
	c.eventually("the node has caught up", func() error { return sameApplied(c) })
}

func TestARestartFromASnapshotKeepsTheLocks(t *testing.T) {
	c := newCluster(t, 1, smallSnapshots)
	cl := c.connect(c.leader())
	cl.open()
	var last command.Token
	for i := uint64(1); i <= 50; i++ {
		last = cl.acquire(i, fmt.Sprintf("jobs/%d", i))
	}
	c.eventually("a snapshot", func() error {
		if c.leader().Status().Replica.Snapshot < 20 {
			return errors.New("none")
		}
		return nil
	})
	c.stop("n1")
	files, err := filepath.Glob(filepath.Join(c.dir, "n1/snapshots/*.snap"))
	if err != nil || len(files) == 0 || len(files) > 2 {
		t.Errorf("snapshot files: %v %v", files, err)
	}
	c.start("n1")
	read := c.connect(c.leader()).call(lead.ReadLock{Name: "jobs/50", Holders: 100}).(lead.LockRead)
	if len(read.Lock.Holders) != 1 || read.Lock.Holders[0].Token != last {
		t.Errorf("lock: %+v", read.Lock)
	}
}

func TestWithoutSpaceForSnapshotsTheNodeGoesOn(t *testing.T) {
	var full atomic.Bool
	full.Store(true)
	var refused atomic.Int32
	noSpace := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".snap.tmp") {
			refused.Add(1)
			return syscall.ENOSPC
		}
		return nil
	})
	c := newCluster(t, 1, func(cfg *Config) {
		smallSnapshots(cfg)
		cfg.FS = errorfs.Wrap(vfs.Default, noSpace)
	})
	n := c.leader()
	cl := c.connect(n)
	cl.open()
	seq := uint64(0)
	c.eventually("a snapshot fails", func() error {
		seq++
		cl.acquire(seq, fmt.Sprintf("jobs/%d", seq))
		if refused.Load() == 0 {
			return errors.New("none has")
		}
		return nil
	})
	full.Store(false)
	c.eventually("another one succeeds", func() error {
		seq++
		cl.acquire(seq, fmt.Sprintf("jobs/%d", seq))
		if n.Status().Replica.Snapshot <= 1 {
			return errors.New("none has")
		}
		return nil
	})
}

func TestAFailedSyncEndsTheNodeAndTheOthersGoOn(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	var armed atomic.Bool
	fail := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && strings.HasSuffix(op.Path, ".log") && op.Kind == errorfs.OpFileSyncData {
			return errorfs.ErrInjected
		}
		return nil
	})
	c := newCluster(t, 3, func(cfg *Config) {
		if cfg.Name == "n1" {
			cfg.FS = errorfs.Wrap(vfs.Default, fail)
		}
	})
	cl := c.connect(c.leader())
	cl.open()
	cl.acquire(1, "jobs/a")
	bad := c.nodes["n1"]
	armed.Store(true)
	// It may be the leader, whose answer then never comes: what isn't durable is reported to
	// nobody.
	req := lead.Request{Stream: cl.id, Tag: 99, Session: cl.session, Received: cl.n.Now(),
		Body: lead.Acquire{Claim: command.Acquire{Session: cl.session, Seq: 2, Floor: 2, Spec: command.Spec{Names: []string{"jobs/b"}}}}}
	if err := cl.n.Submit([]lead.Request{req}); err != nil {
		t.Fatal(err)
	}
	if err := bad.wait(t); !errors.Is(err, errorfs.ErrInjected) {
		t.Fatalf("Run ended with %v", err)
	}
	if err := bad.Submit(nil); !errors.Is(err, ErrStopped) {
		t.Errorf("Submit: %v", err)
	}
	delete(c.nodes, "n1")
	cl = c.connect(c.leader())
	cl.open()
	cl.acquire(1, "jobs/c")
}

func TestAHangingDiskGivesLeadershipAwayAndEndsTheNode(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	var hang sync.RWMutex
	stall := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".log") {
			hang.RLock()
			defer hang.RUnlock()
		}
		return nil
	})
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.tune = func(r *replica.Config) { r.StallExit = 3 * time.Second }
		if cfg.Name == "n1" {
			cfg.FS = errorfs.Wrap(vfs.Default, stall)
		}
	})
	bad := c.lead("n1")
	cl := c.connect(bad)
	cl.open()
	hang.Lock()
	defer hang.Unlock()
	if err := bad.Submit([]lead.Request{{Stream: cl.id, Received: bad.Now(), Body: lead.Open{TTL: 10_000}}}); err != nil {
		t.Fatal(err)
	}
	c.eventually("leadership is given away before the node ends", func() error {
		s := bad.Status()
		if s.Role == Leader {
			return errors.New("n1 still leads")
		}
		return nil
	})
	if err := bad.wait(t); err == nil || !strings.Contains(err.Error(), "not finished") {
		t.Errorf("Run ended with %v", err)
	}
	delete(c.nodes, "n1")
	cl = c.connect(c.leader())
	cl.open()
	cl.acquire(1, "jobs/a")
}

func TestANodeThatWaitsForADescriptorDoesNotEndAsIfItsDiskHung(t *testing.T) {
	var dry atomic.Bool
	none := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if dry.Load() && (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite) {
			return syscall.EMFILE
		}
		return nil
	})
	const stall = time.Second
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.FS = errorfs.Wrap(vfs.Default, none)
		cfg.tune = func(r *replica.Config) { r.StallExit = stall }
	})
	n := c.leader()
	cl := c.connect(n)
	cl.open()
	dry.Store(true)
	var waited time.Time
	for seq := uint64(1); time.Since(waited) < 3*stall || waited.IsZero(); seq++ {
		// Claims with long names, until the log needs a new file, and then no more: the log would
		// not accept them.
		if waited.IsZero() {
			names := make([]string, 16)
			for i := range names {
				names[i] = fmt.Sprintf("%0500d", seq*16+uint64(i))
			}
			_ = n.Submit([]lead.Request{{Stream: cl.id, Received: n.Now(), Session: cl.session, Body: lead.Acquire{
				Claim: command.Acquire{Session: cl.session, Seq: seq, Floor: seq, Spec: command.Spec{Names: names}},
			}}}) // refused when too much is in flight
		}
		if waited.IsZero() && n.Status().DescriptorWaits > 0 {
			waited = time.Now()
		}
		select {
		case <-n.ended:
			t.Fatalf("the node ended: %v", n.err)
		case <-time.After(2 * time.Millisecond):
		}
	}
	if busy := n.Status().DiskBusy; busy < stall {
		t.Errorf("the write has been under way for %v: it did not wait", busy)
	}
	dry.Store(false)
	c.eventually("the node grants again", func() error {
		if n.Status().DiskBusy > stall {
			return errors.New("it does not write")
		}
		return nil
	})
	again := c.connect(n)
	again.open()
	again.acquire(1, "jobs/a")
}

func TestABrokenInvariantIsTheErrorOfRun(t *testing.T) {
	// A node without a replica.
	n := &Node{log: slog.New(slog.DiscardHandler), inbox: newInbox(), began: time.Now()}
	if _, _, err := n.turn(new(load)); err == nil || !strings.Contains(err.Error(), "broken invariant") {
		t.Errorf("err = %v", err)
	}
}

func TestANodeThatIsOlderThanItsClusterSaysSo(t *testing.T) {
	n := &Node{log: slog.New(slog.DiscardHandler)}
	err := n.broke(fmt.Errorf("replica: entry 7 of term 2: %w", command.ErrNewer))
	if strings.Contains(err.Error(), "invariant") || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("err = %v", err)
	}
}

func TestANodeWithAWipedDirectoryIsRefused(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.leader()
	c.eventually("all have met", func() error {
		for _, n := range c.nodes {
			for _, m := range n.Status().Members {
				if !m.Reachable {
					return fmt.Errorf("%s does not reach %s", n.cfg.Name, m.Name)
				}
			}
		}
		return nil
	})
	c.stop("n2")
	if err := os.RemoveAll(filepath.Join(c.dir, "n2")); err != nil {
		t.Fatal(err)
	}
	n := c.start("n2")
	err := n.wait(t)
	if !errors.Is(err, ErrReplaced) || !strings.Contains(err.Error(), "member replace") {
		t.Errorf("Run ended with %v", err)
	}
	delete(c.nodes, "n2")
	c.leader()
}

func TestAMinorityGrantsNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	for name := range c.nodes {
		if name != leader.cfg.Name {
			c.stop(name)
		}
	}
	c.eventually("the leader steps down", func() error {
		if leader.Status().Role == Leader {
			return errors.New("still leads")
		}
		return nil
	})
	a := c.connect(leader).call(lead.Open{TTL: 10_000, Attach: true})
	if r, ok := a.(lead.Refused); !ok || r.Reason != lead.NotLeader {
		t.Errorf("answer %+v", a)
	}
}

func TestANodeThatWaitsForTheOthersRefusesRequests(t *testing.T) {
	c := newCluster(t, 3, nil)
	for _, name := range []string{"n1", "n2", "n3"} {
		c.stop(name)
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		if err := os.RemoveAll(filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	n := c.start("n1")
	a := c.connect(n).call(lead.ReadLock{Name: "x", Holders: 100})
	if r, ok := a.(lead.Refused); !ok || r.Reason != lead.NotLeader {
		t.Errorf("answer %+v", a)
	}
	if s := n.Status(); s.Role != Starting || len(s.Members) != 3 {
		t.Errorf("status %+v", s)
	}
	c.start("n2")
	c.start("n3")
	c.leader()
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.leader()
	c.members["n2"] = "127.0.0.1:1" // another cluster nominally, but the same directory
	_, err := storage.Open(storage.Config{Dir: filepath.Join(c.dir, "n1"), ClusterID: "x", NodeID: 1})
	if !errors.Is(err, storage.ErrLocked) {
		t.Errorf("err = %v", err)
	}
}
