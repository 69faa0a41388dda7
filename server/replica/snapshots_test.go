package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

func smallSnapshots(cfg *Config) { cfg.SnapshotEntries, cfg.SnapshotTail, cfg.SnapshotLag = 20, 400, 1 }

// work takes and releases locks until n more entries are applied at the host.
func (k *client) work(n uint64) {
	k.c.t.Helper()
	for end := k.host.r.Status().Applied + n; k.host.r.Status().Applied < end; {
		got := k.acquire(fmt.Sprintf("job/%d", k.seq%7))
		if k.seq%3 != 0 {
			k.call(lead.Release{Claim: command.Release{Seq: got.Seq, Token: got.Token}})
		} else {
			k.call(lead.Cancel{Claim: command.Cancel{Seq: got.Seq, Floor: got.Seq}})
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
	if got := h.r.machine.Lock("kept", 100, 0).Holders; len(got) != 1 || got[0].Token != kept.Token {
		t.Errorf("kept is held by %+v", got)
	}
}

func TestTheNodesTakeTheirSnapshotsAtDifferentTimes(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.SnapshotEntries = 60 })
	k := c.open(c.leader(), 600_000)
	began := map[uint64][]uint64{} // applied index: the nodes that began a snapshot there
	for range 200 {
		k.work(1)
		for _, h := range c.hosts {
			if at := h.r.snaps.began; at > 0 && !slices.Contains(began[at], h.id) {
				began[at] = append(began[at], h.id)
			}
		}
	}
	for at, nodes := range began {
		if len(nodes) > 1 {
			t.Errorf("nodes %v began a snapshot at entry %d", nodes, at)
		}
	}
	if len(began) < 9 {
		t.Errorf("%d snapshots were begun", len(began))
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
	if !behind.r.writes.installing() {
		t.Fatal("no snapshot is on its way to the disk")
	}
	if got := behind.r.Status().Applied; got > 20 {
		t.Fatalf("applied %d, and the disk has not written the snapshot", got)
	}
	behind.r.snaps.grown = 1 << 40 // its own snapshot is due, while it is installing one
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
	c.lose = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgSnap }
	c.heal()
	c.run(second)
	if c.host(3).r.Status().Applied > 20 {
		t.Fatal("it has caught up without a snapshot")
	}
	c.lose = nil
	c.caughtUp(3)
}

// caughtUp waits until the host has applied what the leader has. It must not need a new entry for
// that.
func (c *cluster) caughtUp(id uint64) {
	c.t.Helper()
	c.until(10*second, "caught up follower", func() bool {
		return c.host(id).r.Status().Applied == c.leader().r.Status().Applied
	})
	if c.host(id).r.machine.Hash() != c.leader().r.machine.Hash() {
		c.t.Error("the states differ")
	}
}

// strange makes a leader believe that host 3, from which it has heard nothing in its term, has an
// empty log.
func (c *cluster) strange(step func(h *host, m *raftpb.Message)) *host {
	c.t.Helper()
	k := c.open(c.lead(1), 60_000)
	k.work(10)
	c.isolate(3)
	c.lead(2)
	h := c.lead(1)
	step(h, &raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(h.r.Status().Term), Index: new(uint64(0)),
	})
	c.heal()
	return h
}

func TestAnAnswerToAnOldLeaderIsNotTakenForAnAcknowledgement(t *testing.T) {
	c := newCluster(t, 3, nil)
	snaps := 0
	c.lose = func(m *raftpb.Message) bool {
		if m.GetType() == raftpb.MsgSnap {
			snaps++
		}
		return false
	}
	c.strange(func(h *host, m *raftpb.Message) { h.inputs = append(h.inputs, Message{m}) })
	c.caughtUp(3)
	if snaps > 0 {
		t.Errorf("%d snapshots were sent to a follower that lacks a few entries", snaps)
	}
}

// TestASnapshotThatRaftAsksForIsMade: Raft wants to send a snapshot, for whatever reason, and there
// is none except the empty machine, which has no file.
func TestASnapshotThatRaftAsksForIsMade(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.strange(func(h *host, m *raftpb.Message) { h.r.step(m) })
	c.caughtUp(3)
	if h.r.Status().Snapshot < firstIndex {
		t.Error("it caught up without a snapshot: the test is about one")
	}
}

func TestASnapshotThatRaftAsksForAndThatFailsIsMadeAgain(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.strange(func(h *host, m *raftpb.Message) { h.r.step(m) })
	failed, starts := 0, map[uint64]bool{}
	for end := c.now + 3*second; c.now < end; c.tick() {
		if meta := h.r.snaps.meta; meta != nil {
			failed++
			starts[seconds(c.now)] = true
			h.disk.unsynced = slices.DeleteFunc(h.disk.unsynced, func(s sync) bool { return s.snapshot != nil })
			h.inputs = append(h.inputs, SnapshotFailed{meta.GetIndex()})
		}
	}
	if failed == 0 || failed > 4*len(starts) {
		t.Errorf("%d snapshots were tried in 3 s, want about one a second", failed)
	}
	c.caughtUp(3)
}

func seconds(t lead.Time) uint64 { return uint64(t / second) }

func TestASnapshotWhoseFileIsGoneIsMadeAgain(t *testing.T) {
	c := newCluster(t, 3, smallSnapshots)
	h := c.lead(1)
	k := c.open(h, 60_000)
	c.isolate(3)
	k.work(90)
	c.run(200 * ms)
	h.disk.state = map[uint64][]byte{}
	c.heal()
	c.caughtUp(3)
	for index := range h.disk.state {
		if index < h.r.Status().Snapshot {
			t.Errorf("a snapshot at %d is there, the newest is at %d", index, h.r.Status().Snapshot)
		}
	}
}

// TestAMemberThatIsYoungerThanTheSnapshotGetsANewOne: a snapshot is in progress when the member is
// added, and when it is durable the earlier log is gone.
func TestAMemberThatIsYoungerThanTheSnapshotGetsANewOne(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { smallSnapshots(cfg); cfg.SnapshotEntries = 60 })
	h := c.lead(1)
	k := c.open(h, 60_000)
	c.snapshotTime = 500 * ms
	for h.r.snaps.meta == nil {
		k.work(1)
	}
	c.addLearner(h, 4)
	if h.r.Status().Snapshot != 1 {
		t.Fatalf("the snapshot at %d is durable already", h.r.Status().Snapshot)
	}
	c.until(5*second, "short log", func() bool {
		first, _ := h.r.disk.FirstIndex()
		return first > firstIndex
	})
	c.start(c.host(4))
	c.caughtUp(4)
}

func TestAFollowerThatRestartsBeforeTheSnapshotIsInItsLogGetsAnother(t *testing.T) {
	c := newCluster(t, 3, smallSnapshots)
	h := c.lead(1)
	k := c.open(h, 60_000)
	c.isolate(3)
	k.work(90)
	c.heal()
	behind := c.host(3)
	behind.disk.stuck = true
	c.until(5*second, "snapshot on its way to the disk", func() bool { return behind.r.writes.installing() })
	c.crash(behind)
	c.start(behind)
	c.caughtUp(3)
}

// TestAFollowerCatchesUpUnderLoad: a snapshot takes longer to arrive than the load takes to make
// the next one.
func TestAFollowerCatchesUpUnderLoad(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.SnapshotEntries, cfg.SnapshotTail = 100, 400 })
	c.transfer = 2 * second
	h := c.lead(1)
	k := c.open(h, 600_000)
	c.isolate(3)
	c.run(heardFor + second)
	k.work(250)
	c.heal()
	for behind, from := c.host(3), c.now; behind.r.Status().Applied+10 < h.r.Status().Applied; {
		k.work(10)
		if c.now-from > 10*second {
			t.Fatalf("not caught up after 10 s of load: %s", c.describe())
		}
	}
	if n := h.r.Status().Snapshot; n < 500 {
		t.Errorf("the newest snapshot is at %d: the load made too few to show anything", n)
	}
	k.work(200)
	c.run(200 * ms)
	if first, _ := h.r.disk.FirstIndex(); h.r.Status().Snapshot-first > 20 {
		t.Errorf("the log from %d on is still in memory, snapshot at %d", first, h.r.Status().Snapshot)
	}
}

func TestTheLogThatIsKeptForAFollowerIsBounded(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.SnapshotEntries, cfg.SnapshotTail, cfg.SnapshotLag = 50, 400, 100*(entryCost+100)
	})
	h := c.lead(1)
	k := c.open(h, 600_000)
	c.host(3).disk.stuck = true // it hears its leader and acknowledges nothing
	c.host(3).disk.unsynced = nil
	for range 12 {
		k.work(50)
		first, _ := h.r.disk.FirstIndex()
		if kept := h.r.Status().LastIndex - first; kept > 250 {
			t.Fatalf("%d entries are kept", kept)
		}
		if c.host(3).r.Status().DiskBusy > 9*time.Second {
			break
		}
	}
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
	h := c.lead(1) // the one with a mark at entry 500
	k := c.open(h, 60_000)
	for i := range 300 {
		k.send(k.acquireBody(spec(fmt.Sprintf("many/%d", i))))
	}
	k.acquire("all") // when the others are held
	before, slowest := h.r.Status().Snapshot, lead.Time(0)
	for n := 0; h.r.Status().Snapshot == before; n++ {
		if n == 600 { // two entries each, and each voter has a mark of its own
			t.Fatalf("no snapshot: %+v", h.r.Status())
		}
		from := c.now
		got := k.acquire("job")
		slowest = max(slowest, c.now-from)
		k.call(lead.Release{Claim: command.Release{Seq: got.Seq, Token: got.Token}})
	}
	if slowest > 10*ms {
		t.Errorf("a grant took %d ms while a snapshot was made", slowest/ms)
	}
}

// A part with a large chunk counts for as many parts as it is large.
func TestALargeChunkIsWrittenAtTheSamePace(t *testing.T) {
	c := newCluster(t, 1, nil)
	h := c.leader()
	k := c.open(h, 60_000)
	const claims = 32
	for i := range claims {
		large := spec(fmt.Sprintf("large/%d", i))
		large.Metadata = []command.Label{{Key: "k", Value: strings.Repeat("v", partSize/2)}}
		k.call(k.acquireBody(large))
	}
	h.inputs = append(h.inputs, SnapshotWanted{})
	from, before := c.now, h.r.Status().Snapshot
	for h.r.Status().Snapshot == before {
		c.run(ms)
	}
	if took, least := c.now-from, lead.Time(claims/2*5)*ms; took < least {
		t.Errorf("a state of %d parts was written in %d ms, want at least %d", claims/2, took/ms, least/ms)
	}
}

// Who waits for a snapshot asks again, in case it failed.
func TestASnapshotThatIsAskedForAgainIsMadeOnce(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.SnapshotPace = 200 * time.Millisecond })
	h := c.leader()
	k := c.open(h, 60_000)
	k.acquire("first")
	wanted := SnapshotWanted{Index: h.r.Status().Applied}
	h.inputs = append(h.inputs, wanted)
	c.run(100 * ms) // in progress
	k.acquire("second")
	h.inputs = append(h.inputs, wanted)
	c.run(10_000 * ms)
	if got := h.r.Status().Snapshot; got != wanted.Index {
		t.Errorf("the last snapshot is at %d, want the one at %d alone", got, wanted.Index)
	}
}
