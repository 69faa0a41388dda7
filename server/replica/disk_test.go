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
	"github.com/lockstep-dev/lockstep/server/machine"
)

// count counts the messages of a kind on the network.
func (c *cluster) count(from uint64, kind raftpb.MessageType) (n int) {
	for _, p := range c.network {
		if p.from == from && p.message.GetType() == kind {
			n++
		}
	}
	return n
}

func TestALeaderWithAStuckDiskGivesLeadershipAway(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, 60_000)
	k.acquire("job")
	c.run(100 * ms)
	h.disk.stuck = true
	k.send(k.acquireBody(spec("other"))) // something to write
	from := c.now
	next := c.leader(1)
	if took := c.now - from; took < 400*ms || took > 700*ms {
		t.Errorf("leadership moved after %v, want soon after 400 ms", time.Duration(took))
	}
	if n := len(next.r.machine.Lock("job", 100, 0).Holders); n != 1 {
		t.Error("the grant is gone")
	}
}

func TestAZombieLeaderFallsSilentAndLeadsNoMore(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, 60_000)
	c.run(100 * ms)
	// Its peers' messages do not reach it, so neither a transfer nor news of a later term can help.
	h.disk.stuck = true
	c.cut = func(from, to uint64) bool { return to == 1 }
	// Raft itself would step down for lack of answers; keep it believing for the sake of the test.
	k.send(k.acquireBody(spec("job")))
	transfers := 0
	for end := c.now + 1_500*ms; c.now < end; {
		c.tick()
		transfers += c.count(1, raftpb.MsgTimeoutNow)
		if h.r.muted() && h.r.Status().DiskBusy > 1_010*time.Millisecond {
			if n := c.count(1, raftpb.MsgHeartbeat); n != 0 {
				t.Fatalf("%d heartbeats of a leader whose disk has not answered for %v", n, h.r.Status().DiskBusy)
			}
		}
	}
	next := c.leader(1)
	k2 := c.open(next, 60_000)
	if got := k2.acquire("job2"); got.State != command.Granted {
		t.Errorf("claim %+v", got)
	}
	for _, r := range h.replies {
		if _, ok := r.Answer.(lead.Claimed); ok {
			t.Errorf("the zombie answered %+v", r)
		}
	}
	c.until(12*second, "wish to exit", func() bool { return h.exit != "" })
	if !strings.Contains(h.exit, "not finished for") {
		t.Errorf("exit says %q", h.exit)
	}
}

func TestAMutedLeaderSendsNothing(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.StallTransfer = time.Hour })
	h := c.lead(1)
	c.run(100 * ms)
	h.disk.stuck = true
	k := &client{c: c, host: h, stream: c.newStream()}
	k.send(lead.Open{TTL: ttl})
	c.until(2*second, "muted leader", func() bool { return h.r.muted() })
	sent := h.sent
	c.run(100 * ms)
	if h.r.Status().Role == Leader && h.sent != sent {
		t.Errorf("%d messages were sent", h.sent-sent)
	}
	next := c.leader(1)
	h.disk.stuck = false
	c.run(second)
	if s := h.r.Status(); s.Leader != next.id || s.Applied != next.r.Status().Applied {
		t.Errorf("after the stall: %+v", s)
	}
}

func TestAPauseIsNotTakenForAStallOfTheDisk(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, 60_000)
	k.send(k.acquireBody(spec("job")))
	c.until(second, "write", func() bool { return len(h.disk.unsynced) > 0 })
	h.paused, h.disk.stuck = true, true
	c.run(30 * second)
	h.paused = false
	c.run(100 * ms) // it runs before the end of the write is reported
	if h.exit != "" || h.r.mayTransfer != 0 {
		t.Errorf("exit %q, leadership given away at %v, after a pause", h.exit, h.r.mayTransfer)
	}
}

func TestLeadershipIsGivenAwayForTheDiskAtMostOnceInTenSeconds(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.StallMute, cfg.StallExit = time.Hour, time.Hour })
	h := c.lead(1)
	k := c.open(h, 60_000)
	c.run(100 * ms)
	tries := 0
	c.lose = func(m *raftpb.Message) bool { // no disk takes it
		lost := m.GetType() == raftpb.MsgTimeoutNow
		if lost {
			tries++
		}
		return lost
	}
	for i, want := range []int{1, 1, 2, 2} {
		h.disk.stuck = true
		k.send(k.acquireBody(spec(fmt.Sprintf("job%d", i))))
		c.run(4 * second)
		h.disk.stuck = false
		c.run(second)
		if tries != want {
			t.Errorf("%d wishes after %d stalls of 4 s", tries, i+1)
		}
	}
}

// TestASuccessorOfASlowDiskStays: what is slow for it may be slow for all in turn.
func TestASuccessorOfASlowDiskStays(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.StallMute, cfg.StallExit = time.Hour, time.Hour })
	h := c.lead(1)
	k := c.open(h, 60_000)
	c.run(100 * ms)
	h.disk.stuck = true
	k.send(k.acquireBody(spec("job")))
	next := c.leader(1)
	h.disk.stuck = false
	c.run(second)
	next.disk.stuck = true
	c.send(next, lead.Request{Stream: c.newStream(), Body: lead.Open{TTL: ttl}})
	c.run(7 * second)
	if next.r.Status().Role != Leader {
		t.Error("leadership was given away twice within 10 s for a disk")
	}
	c.run(4 * second)
	if next.r.Status().Role == Leader {
		t.Error("it still leads, with a disk that has not answered for 11 s")
	}
}

// TestDisksThatAreSlowAlikeKeepTheirLeader: however long a sync takes, 1 ms to 2 s, the cluster
// serves at the rate that the disks allow, and leadership does not move because of a disk that is
// no slower than the next one.
func TestDisksThatAreSlowAlikeKeepTheirLeader(t *testing.T) {
	for _, takes := range []lead.Time{50, 200, 400, 600, 800, 1_000, 1_200, 1_600, 2_000} {
		c := newCluster(t, 3, nil)
		h := c.lead(1)
		k := c.open(h, 30_000)
		held := k.acquire("held")
		c.diskTime = takes * ms
		grants, from, term := 0, c.now, h.r.Status().Term
		for c.now-from < 40*second {
			tag := k.send(k.acquireBody(spec(fmt.Sprintf("job%d", k.seq))))
			c.until(5*takes*ms+100*ms, fmt.Sprintf("grant with syncs of %d ms", takes), func() bool {
				if c.now%second == 0 {
					k.renew()
				}
				return len(h.take(func(r lead.Reply) bool { return r.Tag == tag })) > 0
			})
			grants++
		}
		if most := int(40 * second / (takes * ms)); grants < most/2 {
			t.Errorf("%d ms a sync: %d grants in 40 s, the disks allow %d", takes, grants, most)
		}
		if got := h.r.Status(); got.Term != term || got.Role != Leader {
			t.Errorf("%d ms a sync: the leader changed: term %d, before %d", takes, got.Term, term)
		}
		if now := h.r.machine.Lock("held", 100, 0).Holders; len(now) != 1 || now[0].Token != held.Token {
			t.Errorf("%d ms a sync: the lock that was held is held by %+v", takes, now)
		}
	}
}

// TestSlowDisksElectALeader: a vote has to be durable before it counts, and a sync takes longer
// than an election timeout.
func TestSlowDisksElectALeader(t *testing.T) {
	for seed := range uint64(8) {
		for _, takes := range []lead.Time{600, 1_200, 2_000} {
			reseed(seed)
			c := newCluster(t, 3, nil)
			h := c.lead(1)
			k := c.open(h, 60_000)
			c.diskTime = takes * ms
			// The others have something to write when the leader dies.
			k.send(k.acquireBody(spec("job")))
			c.run(takes * ms / 2)
			c.crash(h)
			term, from := c.host(2).r.Status().Term, c.now
			var next *host
			c.until(20*second, "leader", func() bool {
				for _, o := range c.hosts[1:] {
					if o.r.Status().Serving {
						next = o
					}
				}
				return next != nil
			})
			took, terms := c.now-from, next.r.Status().Term-term
			t.Logf("seed %d: with syncs of %d ms a leader serves after %v, %d terms later", seed, takes, time.Duration(took), terms)
			if took > 5*takes*ms+2*second || terms > 3 {
				t.Errorf("seed %d: with syncs of %d ms a leader serves after %v, %d terms later", seed, takes, time.Duration(took), terms)
			}
			c.run(20 * second)
			if next.r.Status().Role != Leader {
				t.Errorf("seed %d: with syncs of %d ms the new leader did not last 20 s", seed, takes)
			}
		}
	}
}

func TestAFollowerThatSleptHearsItsLeaderBeforeItStandsForElection(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.lead(1)
	votes := 0
	c.lose = func(m *raftpb.Message) bool {
		if m.GetType() == raftpb.MsgPreVote {
			votes++
		}
		return false
	}
	for range 5 {
		c.host(2).paused = true
		c.run(60 * second)
		c.host(2).paused = false
		c.run(500 * ms)
	}
	if votes != 0 || !c.host(1).r.Status().Serving {
		t.Errorf("it asked for %d votes after its sleep", votes)
	}
}

func TestNoVoteOrAcknowledgementLeavesBeforeItIsDurable(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, 60_000)
	c.run(100 * ms)
	c.host(2).disk.stuck, c.host(3).disk.stuck = true, true
	tag := k.send(k.acquireBody(spec("job")))
	for range 300 {
		c.tick()
		for id := uint64(2); id <= 3; id++ {
			for _, p := range c.network {
				if p.from == id && p.message.GetType() == raftpb.MsgAppResp && p.message.GetIndex() > c.host(id).disk.last() {
					t.Fatalf("replica %d acknowledged entry %d with %d on its disk", id, p.message.GetIndex(), c.host(id).disk.last())
				}
			}
		}
	}
	if got := h.take(func(r lead.Reply) bool { return r.Tag == tag }); len(got) != 0 {
		t.Errorf("answered %+v with one disk of three", got)
	}
	c.host(2).disk.stuck = false
	if a, ok := c.answer(h, tag).(lead.Claimed); !ok || a.Claim.State != command.Granted {
		t.Errorf("answered %+v", a)
	}
}

func (d *disk) last() uint64 {
	if len(d.entries) == 0 {
		return d.meta.GetIndex()
	}
	return d.entries[len(d.entries)-1].GetIndex()
}

func TestACommitIndexAloneDoesNotGoToTheDisk(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	k := c.open(h, 60_000)
	c.run(200 * ms)
	wrote := func() (n int) {
		for _, o := range c.hosts {
			n += o.wrote
		}
		return n
	}
	before := wrote()
	const rounds = 10
	for range rounds {
		got := k.acquire("job")
		k.call(lead.Release{Claim: command.Release{Seq: got.Seq, Token: got.Token}})
	}
	c.run(200 * ms)
	if n := wrote() - before; n != 2*rounds*3 {
		t.Errorf("%d writes for %d entries on three replicas, want one each", n, 2*rounds)
	}
	for _, o := range c.hosts {
		if got, want := o.disk.hard.GetCommit(), o.r.Status().Committed; got+1 < want {
			t.Errorf("replica %d has commit index %d on disk, %d in memory: more than the last write apart", o.id, got, want)
		}
	}
}

func TestALogThatIsOverwrittenWhileItIsWrittenEndsRight(t *testing.T) {
	for seed := range uint64(10) {
		reseed(seed)
		c := newCluster(t, 3, func(cfg *Config) { cfg.StallExit, cfg.StallMute = time.Hour, time.Hour })
		k := c.open(c.leader(), 300_000)
		// Slow disks, and leaders that change while entries are on their way to them.
		for i := range 15 {
			for _, h := range c.hosts {
				h.disk.stuck = (uint64(i)+h.id+seed)%3 == 0
			}
			for _, h := range c.hosts {
				if h.r.Status().Serving {
					k.host = h
					q := lead.Request{Stream: k.stream, Session: k.id, Secret: &k.secret, Body: k.acquireBody(spec("job" + string(rune('a'+i))))}
					c.send(h, q)
				}
			}
			if i%2 == 0 {
				c.isolate(uint64(i/2)%3 + 1)
			} else {
				c.heal()
			}
			c.run(lead.Time(200+100*(int(seed)%7)) * ms)
		}
		c.heal()
		for _, h := range c.hosts {
			h.disk.stuck = false
		}
		c.run(3 * second)
		h := c.leader()
		c.until(second, "agreement", func() bool {
			return !slices.ContainsFunc(c.hosts, func(o *host) bool { return o.r.machine.Hash() != h.r.machine.Hash() })
		})
		for _, o := range c.hosts {
			if len(o.disk.entries) == 0 || o.disk.last() != o.r.Status().LastIndex {
				t.Fatalf("seed %d: replica %d has %d on its disk, %d in memory", seed, o.id, o.disk.last(), o.r.Status().LastIndex)
			}
			for _, e := range o.disk.entries {
				if term, err := o.r.disk.Term(e.GetIndex()); err != nil || term != e.GetTerm() {
					t.Fatalf("seed %d: entry %d has term %d on disk, %d (%v) in memory", seed, e.GetIndex(), e.GetTerm(), term, err)
				}
			}
		}
	}
}

func TestRecoveryFailsClosed(t *testing.T) {
	meta := &raftpb.SnapshotMetadata{Index: new(uint64(5)), Term: new(uint64(2)), ConfState: &raftpb.ConfState{Voters: []uint64{1}}}
	entry := func(i uint64) *raftpb.Entry { return &raftpb.Entry{Index: new(i), Term: new(uint64(2))} }
	hard := func(commit uint64) *raftpb.HardState {
		return &raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(1)), Commit: new(commit)}
	}
	tests := []struct {
		name string
		rec  Recovered
		want string // of the error; empty: none
	}{
		{"nothing but a snapshot", Recovered{Snapshot: meta}, ""},
		{"a commit index older than the snapshot", Recovered{Snapshot: meta, HardState: hard(3)}, ""},
		{"entries that the snapshot covers", Recovered{Snapshot: meta, HardState: hard(6), Entries: []*raftpb.Entry{entry(4), entry(5), entry(6)}}, ""},
		{"a gap behind the snapshot", Recovered{Snapshot: meta, HardState: hard(5), Entries: []*raftpb.Entry{entry(7)}}, "starts at 7, after a snapshot at 5"},
		{"a log that ends before what was committed", Recovered{Snapshot: meta, HardState: hard(9), Entries: []*raftpb.Entry{entry(6)}}, "entry 9 was committed"},
		{"no snapshot", Recovered{}, "index 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.rec.Machine = machine.New()
			_, err := New(Config{ID: 1, Rand: &fixedReader{}, Recovered: tt.rec})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAnIncompleteConfigIsRefused(t *testing.T) {
	rec := Recovered{Machine: machine.New(), Snapshot: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1))}}
	for want, cfg := range map[string]Config{
		"ID is zero":    {Rand: &fixedReader{}, Recovered: rec},
		"Rand is nil":   {ID: 1, Recovered: rec},
		"Machine":       {ID: 1, Rand: &fixedReader{}},
		"ElectionTicks": {ID: 1, Rand: &fixedReader{}, Recovered: rec, ElectionTicks: 2, HeartbeatTicks: 2},
		"InFlight":      {ID: 1, Rand: &fixedReader{}, Recovered: rec, InFlight: -1},
		"randomness":    {ID: 1, Rand: strings.NewReader("short"), Recovered: rec},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want one about %s", err, want)
		}
	}
}
