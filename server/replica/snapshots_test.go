package replica

import (
	"fmt"
	"testing"

	"github.com/lockstep-dev/lockstep/server/machine"
)

func smallSnapshots(cfg *Config) { cfg.SnapshotEntries, cfg.SnapshotTail = 20, 400 }

// work takes and frees locks until n more entries are applied at the host.
func (k *client) work(n uint64) {
	k.c.t.Helper()
	for end := k.host.r.Status().Applied + n; k.host.r.Status().Applied < end; {
		got := k.acquire(fmt.Sprintf("job/%d", k.seq%7))
		if k.seq%3 != 0 {
			k.call(Release{machine.Release{Seq: got.Seq, Token: got.Token}})
		} else {
			k.call(Cancel{machine.Cancel{Seq: got.Seq, Floor: got.Seq}})
		}
	}
}

func TestASnapshotIsMadeTheLogShrinksAndARestartUsesIt(t *testing.T) {
	c := newCluster(t, 3, smallSnapshots)
	h := c.leader()
	k := c.open(h, 60_000)
	kept := k.acquire("kept")
	k.work(70)
	c.run(200 * ms)
	for _, o := range c.hosts {
		s := o.r.Status()
		if s.Snapshot < 40 || o.disk.meta.GetIndex() != s.Snapshot {
			t.Errorf("replica %d has applied %d and its snapshot is at %d, on disk at %d", o.id, s.Applied, s.Snapshot, o.disk.meta.GetIndex())
		}
		if first := o.disk.entries[0].GetIndex(); first != s.Snapshot+1 {
			t.Errorf("replica %d keeps the log from %d on disk, snapshot at %d", o.id, first, s.Snapshot)
		}
		first, _ := o.r.disk.FirstIndex()
		if first > s.Snapshot || s.Snapshot-first > 20 {
			t.Errorf("replica %d keeps the log from %d in memory, snapshot at %d: want a short tail", o.id, first, s.Snapshot)
		}
	}
	hash := h.r.machine.Hash()
	for _, o := range c.hosts {
		c.crash(o)
		c.start(o)
	}
	h = c.leader()
	if got := h.r.machine.Hash(); got != hash {
		t.Errorf("hash %x after the restart, %x before", got, hash)
	}
	if got := h.r.machine.Lock("kept", 0).Holders; len(got) != 1 || got[0].Token != kept.Token {
		t.Errorf("kept is held by %+v", got)
	}
}

func TestAFollowerFarBehindGetsASnapshotAndThenTheLog(t *testing.T) {
	c := newCluster(t, 3, smallSnapshots)
	h := c.lead(1)
	k := c.open(h, 60_000)
	k.work(10)
	c.isolate(3)
	k.work(90)
	c.heal()
	c.until(5*second, "caught up follower", func() bool {
		return c.host(3).r.Status().Applied == h.r.Status().Applied
	})
	behind := c.host(3)
	if behind.r.machine.Hash() != h.r.machine.Hash() {
		t.Error("the states differ")
	}
	if got := behind.applied[len(behind.applied)-1].Index - uint64(len(behind.applied)); got < 20 {
		t.Errorf("it applied all but %d entries one by one, want a snapshot", got)
	}
	k.work(30)
	c.run(200 * ms)
	if behind.r.Status().Snapshot <= 100 {
		t.Errorf("its own snapshots stopped at %d", behind.r.Status().Snapshot)
	}
	c.crash(behind)
	c.start(behind)
	k.work(2)
	c.run(500 * ms)
	if behind.r.machine.Hash() != h.r.machine.Hash() {
		t.Error("the states differ after a restart")
	}
}

func TestTheMachineIsSwappedOnlyWhenTheSnapshotIsDurable(t *testing.T) {
	c := newCluster(t, 3, smallSnapshots)
	h := c.lead(1)
	k := c.open(h, 60_000)
	c.isolate(3)
	k.work(90)
	behind := c.host(3)
	c.heal()
	behind.disk.stuck = true
	c.run(2 * second)
	if !behind.r.installing() {
		t.Fatal("no snapshot is on its way to the disk")
	}
	if got := behind.r.Status().Applied; got > 20 {
		t.Fatalf("applied %d, and the disk has not written the snapshot", got)
	}
	behind.r.snaps.grown = 1 << 40 // it is time for one of its own, but its log is in between
	c.run(100 * ms)
	behind.disk.stuck = false
	c.until(5*second, "caught up follower", func() bool {
		return behind.r.Status().Applied == h.r.Status().Applied
	})
	if behind.r.machine.Hash() != h.r.machine.Hash() {
		t.Error("the states differ")
	}
}

func TestASnapshotThatDoesNotArriveIsSentAgain(t *testing.T) {
	c := newCluster(t, 3, smallSnapshots)
	h := c.lead(1)
	k := c.open(h, 60_000)
	c.isolate(3)
	k.work(90)
	state := h.disk.state
	h.disk.state = map[uint64][]byte{} // the file cannot be read for a while
	c.heal()
	c.run(second)
	if c.host(3).r.Status().Applied > 20 {
		t.Fatal("it has caught up without a snapshot")
	}
	h.disk.state = state
	c.until(5*second, "caught up follower", func() bool {
		return c.host(3).r.Status().Applied == h.r.Status().Applied
	})
}

func TestAnotherSnapshotIsMadeAfterOneThatFailed(t *testing.T) {
	c := newCluster(t, 1, smallSnapshots)
	h := c.leader()
	k := c.open(h, 60_000)
	h.disk.stuck = false
	c.until(5*second, "snapshot under way", func() bool {
		k.work(1)
		return h.r.snaps.meta != nil
	})
	h.inputs = append(h.inputs, SnapshotFailed{h.r.snaps.meta.GetIndex()})
	c.tick()
	h.disk.unsynced = nil
	failed := h.r.Status().Snapshot
	k.work(30)
	c.run(100 * ms)
	if got := h.r.Status().Snapshot; got <= failed {
		t.Errorf("the last snapshot is still at %d", got)
	}
}

func TestGrantsGoOnWhileASnapshotIsMade(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.SnapshotEntries = 500 })
	h := c.leader()
	k := c.open(h, 60_000)
	for i := range 300 {
		k.send(k.acquireBody(spec(fmt.Sprintf("many/%d", i))))
	}
	k.work(505)
	slowest := Time(0)
	for range 50 {
		from := c.now
		got := k.acquire("job")
		slowest = max(slowest, c.now-from)
		k.call(Release{machine.Release{Seq: got.Seq, Token: got.Token}})
	}
	if slowest > 10*ms {
		t.Errorf("a grant took %d ms while a snapshot was made", slowest/ms)
	}
	c.until(5*second, "snapshot", func() bool { return h.r.Status().Snapshot > 500 })
}
