package replica

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

func TestNothingIsServedBeforeAnOwnTermEntryIsApplied(t *testing.T) {
	c := newCluster(t, 3, nil)
	k := c.open(c.lead(1), ttl)
	// The next leader is elected, but its first entry finds no quorum: its peers' disks stand still
	// once they have voted.
	c.crash(c.host(1))
	next := c.host(2)
	next.inputs = append(next.inputs, Campaign{})
	c.until(5*second, "leader", func() bool { return next.r.Status().Role == Leader || c.host(3).r.Status().Role == Leader })
	if next.r.Status().Role != Leader {
		next = c.host(3)
	}
	c.host(5 - next.id).disk.stuck = true
	k.host = next
	for _, b := range []lead.Body{lead.KeepAlive{}, lead.Attach{Secret: k.secret, Number: 5}, lead.ReadLock{Name: "job", Holders: 100}, k.acquireBody(spec("job"))} {
		if a := k.call(b); refusal(a) != lead.NotLeader {
			t.Errorf("%T was answered %+v", b, a)
		}
	}
	c.host(5 - next.id).disk.stuck = false
	c.until(second, "serving leader", func() bool { return next.r.Status().Serving })
}

func TestTheFirstTokenFloorIsLateEnoughAndNeedsAClockThatCanBeRight(t *testing.T) {
	if got, want := tokenFloor(1_735_689_600_000), command.Token(3_600<<22); got != want {
		t.Errorf("floor at the epoch is %d, want %d", got, want)
	}
	// A cluster that is wiped and recreated within the second, after a thousand grants.
	if early, late := tokenFloor(wall0+100), tokenFloor(wall0+900); late <= early+1000 {
		t.Errorf("a floor of %d, 800 ms after one of %d", late, early)
	}
	if before, next := tokenFloor(wall0+999), tokenFloor(wall0+1000); next <= before {
		t.Errorf("a floor of %d in the next second, after %d", next, before)
	}
	year2093 := command.WallMillis(time.Date(2092, 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli())
	if got := tokenFloor(year2093); got > command.MaxToken {
		t.Errorf("floor at the end of 2092 is %d", got)
	}

	c := newCluster(t, 3, func(cfg *Config) { cfg.Built = wall0 + 5_000 })
	c.until(4*second, "leader", func() bool {
		for _, h := range c.hosts {
			if h.r.Status().Serving && h.r.Status().NoFloor != "" {
				return true
			}
		}
		return false
	})
	for _, h := range c.hosts {
		if n := h.r.Status().Counts.NextToken; n != 0 {
			t.Errorf("replica %d has token %d from a clock before the build", h.id, n)
		}
	}
	c.wall = wall0 + 10_000 // fixed
	h := c.leader()
	if got := c.open(h, ttl).acquire("job"); got.Token < tokenFloor(wall0+10_000) {
		t.Errorf("token %d below the floor", got.Token)
	}
	if h.r.Status().NoFloor != "" {
		t.Error("the reason is still shown")
	}
	c.lead(3 - h.id%2)
	floors := 0
	for _, a := range h.applied {
		if a.Entry != nil {
			for _, cmd := range a.Entry.Commands {
				if _, ok := cmd.(command.SetTokenFloor); ok {
					floors++
				}
			}
		}
	}
	if floors != 1 {
		t.Errorf("%d floors were logged, want that of the first leader alone", floors)
	}
}

func TestAPlannedHandOverTakesLessThan300Milliseconds(t *testing.T) {
	c := newCluster(t, 3, nil)
	for range 10 {
		h := c.leader()
		from := c.now
		h.inputs = append(h.inputs, HandOver{})
		next := c.leader(h.id)
		if took := c.now - from; took > 300*ms {
			t.Errorf("took %v", time.Duration(took))
		}
		if next.id == h.id {
			t.Error("leadership stayed")
		}
		c.run(100 * ms)
	}
}

func TestAFollowerDoesNotPassAHandOverOn(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.lead(1)
	c.host(2).inputs = append(c.host(2).inputs, HandOver{3})
	c.run(second)
	if !c.host(1).r.Status().Serving {
		t.Error("a follower's wish deposed the leader")
	}
}

func TestProposalsThatRaftDropsAreRetriedInside(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, 60_000)
	// A transfer to a member that is down: Raft takes no proposals until it gives up.
	c.crash(c.host(3))
	h.inputs = append(h.inputs, HandOver{3})
	c.tick()
	from := c.now
	if got := k.acquire("job"); got.State != command.Granted {
		t.Errorf("claim %+v", got)
	}
	if took := c.now - from; took < 100*ms || took > second {
		t.Errorf("answered after %v, want after the transfer was given up", time.Duration(took))
	}
}

func TestADeposedLeadersProposalsAreNotForwarded(t *testing.T) {
	c := newCluster(t, 3, nil)
	old := c.lead(1)
	k := c.open(old, 60_000)
	c.isolate(1)
	tag := k.send(k.acquireBody(spec("job")))
	next := c.leader(1)
	c.heal()
	if a := c.answer(old, tag); refusal(a) != lead.NotLeader {
		t.Errorf("answered %+v", a)
	}
	c.run(2 * second)
	if n := len(next.r.machine.Lock("job", 100, 0).Holders); n != 0 {
		t.Error("the proposal of a deposed leader was applied")
	}
	forged := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(uint64(1)), To: new(next.id), Entries: []*raftpb.Entry{{Data: []byte("x")}}}
	next.inputs = append(next.inputs, Message{forged})
	c.run(100 * ms) // applying it would panic
}

func TestAConfChangeIsAppliedByAll(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	c.run(100 * ms)
	change := &raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(h.id%3 + 1)}
	if err := h.r.raft.ProposeConfChange(change); err != nil {
		t.Fatal(err)
	}
	h.wake = c.now
	c.run(200 * ms)
	for _, o := range c.hosts {
		if o.id != h.id%3+1 && len(o.r.Status().Voters) != 2 {
			t.Errorf("replica %d has voters %v", o.id, o.r.Status().Voters)
		}
	}
	if got := c.open(h, ttl).acquire("job"); got.State != command.Granted {
		t.Errorf("claim %+v", got)
	}
}

func TestALeaderThatIsRemovedStepsDown(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	c.run(100 * ms)
	if err := h.r.raft.ProposeConfChange(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(h.id)}); err != nil {
		t.Fatal(err)
	}
	h.wake = c.now
	c.leader(h.id)
	if h.r.Status().Serving {
		t.Error("the removed leader still serves")
	}
}

func TestReplicasCompareTheirHashes(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.CheckEvery = 10 })
	h := c.leader()
	k := c.open(h, 60_000)
	for range 30 {
		got := k.acquire("job")
		k.call(lead.Release{Claim: command.Release{Seq: got.Seq, Token: got.Token}})
	}
	checks := 0
	for _, a := range h.applied {
		if a.Entry != nil {
			for _, cmd := range a.Entry.Commands {
				if _, ok := cmd.(command.CheckHash); ok {
					checks++
				}
			}
		}
	}
	if checks < 4 || checks > 8 {
		t.Errorf("%d checks in 60 entries with one every 10", checks)
	}
	// A replica that has diverged must not go on.
	c.host(h.id%3 + 1).r.machine = machine.New()
	defer func() {
		if recover() == nil {
			t.Error("a replica with another state went on")
		}
	}()
	for range 20 {
		got := k.acquire("job")
		k.call(lead.Release{Claim: command.Release{Seq: got.Seq, Token: got.Token}})
	}
}

func TestTheSameInputsGiveTheSameRun(t *testing.T) {
	run := func() (hash uint64, sent int) {
		reseed(7)
		c := newCluster(t, 3, nil)
		h := c.leader()
		var clients []*client
		for range 10 {
			clients = append(clients, c.open(h, ttl))
		}
		for i, k := range clients {
			k.send(k.acquireBody(spec("job" + string(rune('a'+i%3)))))
		}
		c.beat(5*second, ttl, clients[:5], nil)
		c.crash(h)
		c.beat(15*second, ttl/2, clients[:5], nil)
		next := c.leader()
		for _, o := range c.hosts {
			sent += o.sent*int(o.id) + len(o.replies)
		}
		return next.r.machine.Hash(), sent
	}
	h1, s1 := run()
	h2, s2 := run()
	if h1 != h2 || s1 != s2 {
		t.Errorf("two runs of one seed: hash %x and %x, %d and %d messages", h1, h2, s1, s2)
	}
}

func TestEveryAnswerThatWasGivenSurvivesTheCrashOfAll(t *testing.T) {
	for seed := range uint64(20) {
		reseed(seed)
		c := newCluster(t, 3, nil)
		c.diskTime = 7 * ms
		h := c.leader()
		k := c.open(h, 60_000)
		var last command.ClaimStatus
		n := 3 + int(seed)
		for i := range n {
			last = k.acquire("job" + string(rune('a'+i)))
		}
		// The crash comes at once: anything that no disk has synced is gone.
		for _, o := range c.hosts {
			c.crash(o)
		}
		for _, o := range c.hosts {
			c.start(o)
		}
		h = c.leader()
		if got := h.r.machine.Counts().Holders; got != n {
			t.Fatalf("seed %d: %d grants of %d are left", seed, got, n)
		}
		k.attach(h, 0)
		if got := k.acquire("other"); got.Token <= last.Token {
			t.Fatalf("seed %d: token %d after %d", seed, got.Token, last.Token)
		}
	}
}

func TestAGrantCostsOneMessageEachWayToEveryPeer(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	k := c.open(h, 300_000)
	c.run(second)
	sent, appends := 0, 0
	c.lose = func(m *raftpb.Message) bool {
		switch m.GetType() {
		case raftpb.MsgApp:
			appends++
			sent++
		case raftpb.MsgAppResp:
			sent++
		}
		return false
	}
	const entries = 20
	for range entries / 2 {
		got := k.acquire("job")
		k.call(lead.Release{Claim: command.Release{Seq: got.Seq, Token: got.Token}})
	}
	if appends != 2*entries || sent > 4*entries {
		t.Errorf("%d appends and %d messages with their answers for %d entries and two peers", appends, sent, entries)
	}
	// What is committed reaches them with the next heartbeat.
	c.run(150 * ms)
	for _, o := range c.hosts {
		if o.r.Status().Applied != h.r.Status().Applied {
			t.Errorf("replica %d has applied %d, the leader %d", o.id, o.r.Status().Applied, h.r.Status().Applied)
		}
	}
}

func TestAClockBeyondTheLastTokenGrantsNothingUntilItIsMended(t *testing.T) {
	c := newCluster(t, 1, nil)
	right := c.wall
	c.wall = command.WallMillis(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	h := c.host(1)
	c.until(5*second, "a leader that says why it grants nothing", func() bool { return h.r.Status().NoFloor != "" })
	c.wall = right
	c.until(5*second, "a token floor", func() bool { return h.r.Status().Counts.NextToken >= tokenFloor(right) })
}

func TestAFollowerThatGetsNothingIsStuck(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, 60_000)
	stuck := func(id uint64) time.Duration {
		for _, p := range h.r.Status().Peers {
			if p.ID == id {
				return p.Stuck
			}
		}
		t.Fatalf("no peer %d", id)
		return 0
	}
	c.run(30 * second)
	if stuck(2)+stuck(3) != 0 {
		t.Errorf("stuck for %v and %v with nothing to do", stuck(2), stuck(3))
	}
	// It still answers heartbeats.
	c.lose = func(m *raftpb.Message) bool { return m.GetTo() == 3 && m.GetType() == raftpb.MsgApp }
	k.acquire("job")
	h.paused = true
	c.run(300 * ms)
	h.paused = false
	for range 55 {
		k.acquire("job")
		c.run(200 * ms)
	}
	if got := stuck(3); got < StuckAfter || got > StuckAfter+2*time.Second {
		t.Errorf("stuck for %v after 11 s", got)
	}
	if stuck(2) > time.Second {
		t.Errorf("the other one is stuck for %v", stuck(2))
	}
	c.lose = nil
	c.until(5*second, "follower that comes along", func() bool { return stuck(3) == 0 })
}

// TestWhatWasProposedIsUncertainWhenTheLeadershipEnds: a request that was refused on arrival
// certainly had no effect.
func TestWhatWasProposedIsUncertainWhenTheLeadershipEnds(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.InFlight = 1 })
	h := c.leader()
	k := c.open(h, ttl)
	c.isolate(h.id)
	proposed := k.send(k.acquireBody(spec("job")))
	c.run(100 * ms)
	waiting := k.send(k.acquireBody(spec("other")))
	c.run(100 * ms)
	c.leader(h.id)
	c.heal()
	if no, ok := c.answer(h, proposed).(lead.Refused); !ok || no.Reason != lead.NotLeader || !no.Uncertain {
		t.Errorf("the proposed one was answered %+v", no)
	}
	if no, ok := c.answer(h, waiting).(lead.Refused); !ok || no.Reason != lead.NotLeader || no.Uncertain {
		t.Errorf("the one that waited for its batch was answered %+v", no)
	}
	if no, ok := k.call(k.acquireBody(spec("job"))).(lead.Refused); !ok || no.Reason != lead.NotLeader || no.Uncertain {
		t.Errorf("the one that came later was answered %+v", no)
	}
}

func TestAnEntryOfANewerBuildAsksForAnUpgrade(t *testing.T) {
	c := newCluster(t, 1, nil)
	h := c.leader()
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, command.ErrNewer) || !strings.Contains(err.Error(), "upgrade") {
			t.Errorf("panic %v", err)
		}
	}()
	data := command.AppendEntry(nil, &command.Entry{Commands: []command.Command{command.CloseSession{}}})
	data[len(data)-17] = 250 // the kind of the command
	index, term, kind := h.r.applied+1, uint64(1), raftpb.EntryNormal
	h.r.apply(&raftpb.Entry{Index: &index, Term: &term, Type: &kind, Data: data})
}
