package replica

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/machine"
)

const restoreWait = 20_000 // milliseconds

// renewed makes every replica start from the same renewed state, as a restored cluster does. The machine
// has given tokens up to next, and its backup was taken at stamp.
func renewed(next machine.Token, stamp machine.WallMillis, wait machine.Millis) func(*Config) {
	return func(cfg *Config) {
		m := machine.New()
		m.Apply(8, 1, &machine.Entry{Commands: []machine.Command{machine.SetTokenFloor{Floor: next}}})
		m.Renew(stamp, wait)
		cfg.Machine = m
		cfg.Snapshot = &raftpb.SnapshotMetadata{Index: new(m.Index()), Term: new(uint64(1)), ConfState: cfg.Snapshot.GetConfState()}
	}
}

func TestARestoredClusterGrantsAfterTheWaitWithTokensAboveTheFloor(t *testing.T) {
	c := newCluster(t, 3, renewed(500, wall0, restoreWait))
	h := c.leader()
	c.until(5*second, "a floor", func() bool { return !h.r.Recovery().FloorDue })
	floor := tokenFloor(wall0)
	if next := h.r.Status().Counts.NextToken; next < floor {
		t.Errorf("next token %d below the floor %d", next, floor)
	}
	refused := func() bool {
		k := c.open(h, ttl)
		r, ok := k.call(k.acquireBody(spec("job"))).(Refused)
		return ok && r.Code == machine.NotReady
	}
	if !refused() {
		t.Error("granted in the wait")
	}
	// A new leader waits in full.
	c.run(Time(restoreWait) * ms / 2)
	h = c.lead(1 + h.id%3)
	began := c.now
	c.run(Time(restoreWait) * ms * 3 / 4)
	if !refused() {
		t.Error("a new leader did not wait in full")
	}
	c.until(second*restoreWait/1000, "the end of the wait", func() bool { return !h.r.Recovery().Pending() })
	if waited := c.now - began; waited < Time(restoreWait)*ms-second {
		t.Errorf("granted after %v", waited)
	}
	if got := c.open(h, ttl).acquire("job"); got.Token < floor {
		t.Errorf("token %d below the floor %d", got.Token, floor)
	}
	c.run(second)
	for _, o := range c.hosts {
		if o.r.Recovery().Pending() || o.r.machine.Hash() != h.r.machine.Hash() {
			t.Errorf("replica %d differs: %+v", o.id, o.r.Recovery())
		}
	}
}

func TestARestoredClusterWithoutAWaitGrantsAtOnce(t *testing.T) {
	c := newCluster(t, 3, renewed(500, wall0, 0))
	if got := c.open(c.leader(), ttl).acquire("job"); got.Token < tokenFloor(wall0) {
		t.Errorf("token %d", got.Token)
	}
}

func TestARestoredClusterNeedsAClockBehindItsBackup(t *testing.T) {
	for name, tune := range map[string]func(*Config){
		"before the stamp":  renewed(500, wall0+60_000, 0),
		"before the tokens": renewed(tokenFloor(wall0+60_000), 0, 0),
	} {
		c := newCluster(t, 1, tune)
		h := c.host(1)
		c.until(5*second, name, func() bool { return h.r.Status().NoFloor != "" })
		c.wall = wall0 + 120_000
		c.until(5*second, "a floor", func() bool { return !h.r.Recovery().Pending() })
		if got := c.open(h, ttl).acquire("job"); got.Token < tokenFloor(wall0+60_000) {
			t.Errorf("%s: token %d", name, got.Token)
		}
	}
}
