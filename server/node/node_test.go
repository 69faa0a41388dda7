package node

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
)

// leaks is set in the process of a test whose node leaves goroutines until its process exits.
const leaks = "LOCKSTEP_TEST_LEAKS"

func TestMain(m *testing.M) {
	if os.Getenv(leaks) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// inOwnProcess runs only the calling test in another process. It reports whether this is that
// process.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(leaks) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), leaks+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func TestThreeNodesElectALeaderAndGrant(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	cl := c.connect(leader)
	cl.open()
	first := cl.acquire(1, "jobs/a")
	if second := cl.acquire(2, "jobs/b"); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	if s := leader.Status(); s.LeaderName != s.Name || s.LeaderClientAddress != s.Name+".example:7400" {
		t.Errorf("leader's own status: %+v", s)
	}
	c.eventually("all have applied the same", func() error {
		return sameApplied(c)
	})
}

func TestAFollowerNamesTheLeaderAndRefuses(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	for name, n := range c.nodes {
		if n == leader {
			continue
		}
		c.eventually("the follower knows the leader", func() error {
			return want(n.Status().LeaderClientAddress, leader.cfg.ClientAddress)
		})
		if a, ok := c.connect(n).call(lead.ReadLock{Name: "x", Holders: 100}).(lead.Refused); !ok || a.Reason != lead.NotLeader {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestGrantsGoOnWhenTheLeaderIsKilled(t *testing.T) {
	c := newCluster(t, 3, nil)
	old := c.leader()
	cl := c.connect(old)
	cl.open()
	before := cl.acquire(1, "jobs/a")
	c.stop(old.cfg.Name)

	cl2 := c.connect(c.leader())
	cl2.open()
	if after := cl2.acquire(1, "jobs/b"); after <= before {
		t.Errorf("token %d of the new leader, %d of the old one", after, before)
	}
	c.start(old.cfg.Name)
	c.eventually("the old leader has caught up", func() error { return sameApplied(c) })
}

func TestNothingAcknowledgedIsLostWhenAllNodesRestart(t *testing.T) {
	c := newCluster(t, 3, nil)
	cl := c.connect(c.leader())
	cl.open()
	token := cl.acquire(1, "jobs/a")
	for _, name := range []string{"n1", "n2", "n3"} {
		c.stop(name)
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		c.start(name)
	}
	a := c.connect(c.leader()).call(lead.ReadLock{Name: "jobs/a", Holders: 100})
	read, ok := a.(lead.LockRead)
	if !ok || len(read.Lock.Holders) != 1 || read.Lock.Holders[0].Token != token {
		t.Errorf("the lock after the restart: %+v", a)
	}
}

func TestAHandOverGivesLeadershipAway(t *testing.T) {
	c := newCluster(t, 3, nil)
	old := c.leader()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := old.HandOver(ctx); err != nil {
		t.Fatal(err)
	}
	if old.Status().Role == Leader {
		t.Error("still the leader")
	}
	if c.leader() == old {
		t.Error("leads again at once")
	}
	began := time.Now()
	if err := old.HandOver(ctx); err != nil || time.Since(began) > time.Second {
		t.Errorf("a hand-over by a follower: %v after %v", err, time.Since(began))
	}
}

func TestAStoppedNodeRefusesRequests(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.leader()
	cl := c.connect(n)
	c.stop("n1")
	if err := n.Submit([]lead.Request{{Stream: cl.id}}); err != ErrStopped {
		t.Errorf("err = %v, want ErrStopped", err)
	}
	n.Disconnect(cl.id)
}

func TestANodeDoesNotWaitForEverForWhatHangs(t *testing.T) {
	store, err := storage.Open(storage.Config{Dir: "data", FS: vfs.NewMem(), ClusterID: "c", NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	n := &Node{store: store, fatal: func(error) { cancel() }}
	n.busy.began = time.Now()
	cancel()
	got := make(chan error, 1)
	// No write of the log is in progress.
	go func() { got <- n.await(ctx, make(chan error), 10*time.Millisecond) }()
	select {
	case err := <-got:
		if err == nil {
			t.Error("the end was taken for an orderly one")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for ever")
	}
}

// A crash may come before the purge has ended: then only the note says that it is due.
func TestEachPurgeIsNotedBeforeItBegins(t *testing.T) {
	for _, forget := range []replica.Forget{replica.ForgetLater, replica.ForgetNow} {
		store, err := storage.Open(storage.Config{Dir: "data", FS: vfs.NewMem(), ClusterID: "c", NodeID: 1})
		if err != nil {
			t.Fatal(err)
		}
		n := &Node{store: store, disk: newDisk(store, new(inbox), nil, nil), fatal: func(err error) { t.Error(err) }}
		n.carryOut(t.Context(), &replica.Output{Forget: forget})
		if due, err := store.PurgeDue(); err != nil || !due {
			t.Errorf("with %d a purge is due: %v, %v", forget, due, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
