package service

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
)

func TestAMeterLetsABurstPassAndThenTheRate(t *testing.T) {
	m, now := newMeter(100), time.Unix(1000, 0)
	if pause := m.take(now, 100); pause != 0 {
		t.Errorf("a second's worth at once pauses for %v", pause)
	}
	if pause := m.take(now, 50); pause != 500*time.Millisecond {
		t.Errorf("half a second's worth more pauses for %v", pause)
	}
	now = now.Add(500 * time.Millisecond)
	if pause := m.take(now, 0); pause != 0 {
		t.Errorf("after the pause it pauses for %v", pause)
	}
	now = now.Add(time.Hour) // an idle hour does not accumulate more than the burst
	if pause := m.take(now, 101); pause != 10*time.Millisecond {
		t.Errorf("one above the burst pauses for %v", pause)
	}
	m.take(now, 1_000_000) // a flood does not count against the connection for hours
	if pause := m.take(now.Add(time.Second), 0); pause != 0 {
		t.Errorf("a second after a flood it pauses for %v", pause)
	}
}

func TestAQuietLoggerWritesALineASecondAndCountsTheRest(t *testing.T) {
	var out bytes.Buffer
	q := newQuiet(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Unix(1000, 0)
	q.now = func() time.Time { return now }
	for range 10 {
		q.warn("noise")
	}
	q.warn("other")
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Fatalf("%d lines, want 2:\n%s", got, out.String())
	}
	now = now.Add(time.Second)
	q.warn("noise")
	if !strings.Contains(out.String(), "omitted=9") {
		t.Errorf("the omitted lines are not counted:\n%s", out.String())
	}
}

func TestAnOutboxAboveItsLimitKeepsNothing(t *testing.T) {
	o := newOutbox(3)
	o.deliver(make([]lead.Reply, 2))
	o.refuse(&pb.ServerEvent{})
	if replies, events, full := o.take(); len(replies) != 2 || len(events) != 1 || full {
		t.Errorf("took %d replies and %d events, full %v", len(replies), len(events), full)
	}
	o.deliver(make([]lead.Reply, 3))
	o.deliver(make([]lead.Reply, 1))
	o.deliver(make([]lead.Reply, 1))
	if replies, events, full := o.take(); len(replies)+len(events) != 0 || !full {
		t.Errorf("took %d replies and %d events, full %v; want nothing but that it is full", len(replies), len(events), full)
	}
}

func TestAnOutboxCountsWhatRepliesHold(t *testing.T) {
	busy := lead.Reply{Answer: lead.Claimed{Claim: command.ClaimStatus{Blockers: make([]command.Holder, 16)}}}
	o := newOutbox(100)
	for range 20 {
		o.deliver([]lead.Reply{busy})
	}
	if o.isFull() {
		t.Fatal("refused below the bound")
	}
	for range 20 {
		o.deliver([]lead.Reply{busy})
	}
	if !o.isFull() {
		t.Error("40 replies with 640 holders were counted as 40")
	}
	o = newOutbox(100)
	for range 100 {
		o.deliver([]lead.Reply{busy})
		o.take()
	}
	if o.isFull() {
		t.Error("what was taken still counts")
	}
}

func TestOnlyANodeThatKnowsWhoServesIsReady(t *testing.T) {
	for name, c := range map[string]struct {
		st   node.Status
		want bool
	}{
		"starting":                         {node.Status{}, false},
		"follower of nobody":               {node.Status{Role: node.Follower}, false},
		"follower":                         {node.Status{Role: node.Follower, Leader: 2}, true},
		"candidate":                        {node.Status{Role: node.Candidate}, false},
		"leader that has not caught up":    {node.Status{Role: node.Leader, Leader: 1}, false},
		"leader that serves":               {node.Status{Role: node.Leader, Leader: 1, Serving: true}, true},
		"candidate that knew a leader yet": {node.Status{Role: node.Candidate, Leader: 2}, false},
	} {
		if got := Ready(c.st); got != c.want {
			t.Errorf("%s: ready %v, want %v", name, got, c.want)
		}
	}
}

func TestANodeThatBelievesInItselfSendsNobodyToItself(t *testing.T) {
	e := notLeader(node.Status{ID: 1, Leader: 1, LeaderName: "n1", LeaderClientAddress: "h:1"})
	if e.GetLeaderAddress() != "" {
		t.Errorf("sent to %q", e.GetLeaderAddress())
	}
	e = notLeader(node.Status{ID: 1, Leader: 2, LeaderName: "n2", LeaderClientAddress: "h:2"})
	if e.GetLeaderAddress() != "h:2" || !strings.Contains(e.GetMessage(), "n2") {
		t.Errorf("got %v", e)
	}
}

func TestMembersAreShownAsTheyAre(t *testing.T) {
	st := node.Status{Role: node.Leader, Leader: 1, Serving: true}
	for name, c := range map[string]struct {
		st           node.Status
		m            node.MemberStatus
		role, health string
	}{
		"leader":                      {st, node.MemberStatus{Self: true, Leader: true, Reachable: true}, "leader", "ok"},
		"follower that gets nothing":  {node.Status{Role: node.Leader, Leader: 1, Serving: true}, node.MemberStatus{Reachable: true, Stuck: 10 * time.Second}, "follower", "behind"},
		"follower that lags a little": {node.Status{Role: node.Leader, Leader: 1, Serving: true}, node.MemberStatus{Reachable: true, Stuck: 9 * time.Second}, "follower", "ok"},
		"leader without quorum":       {node.Status{Role: node.Leader, Leader: 1}, node.MemberStatus{Self: true, Leader: true, Reachable: true}, "leader", "no-quorum"},
		"follower":                    {st, node.MemberStatus{Reachable: true}, "follower", "ok"},
		"lost":                        {st, node.MemberStatus{}, "follower", "unreachable"},
		"candidate":                   {node.Status{Role: node.Candidate}, node.MemberStatus{Self: true, Reachable: true}, "candidate", "no-quorum"},
		"starting":                    {node.Status{}, node.MemberStatus{Self: true, Reachable: true}, "follower", "starting"},
	} {
		if m := toMember(c.st, c.m); m.GetRole() != c.role || m.GetHealth() != c.health {
			t.Errorf("%s is shown as %s, %s; want %s, %s", name, m.GetRole(), m.GetHealth(), c.role, c.health)
		}
	}
}

func TestAnIncompleteConfigurationIsRefused(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Node") {
		t.Errorf("got %v, want an error that names Node", err)
	}
}

func TestNoAddressFillsALane(t *testing.T) {
	f := newForwarder(Config{Limits: Limits{StreamsPerConnection: 8}})
	l := &f.waiting
	fill := func(from string) (n int, e *pb.Error) {
		for ; e == nil; n++ {
			e = l.enter(from)
		}
		return n - 1, e
	}
	if n, e := fill("10.0.0.1"); n != 4 || !strings.Contains(e.GetMessage(), "clients at 10.0.0.1 that this node forwards at one time: at most 4") {
		t.Errorf("one address has %d calls: %v", n, e)
	}
	if n, e := fill("10.0.0.2"); n != 4 || !strings.Contains(e.GetMessage(), "clients at 10.0.0.2 ") {
		t.Errorf("another address has %d calls: %v", n, e)
	}
	if n, e := fill("10.0.0.3"); n != 0 || !strings.Contains(e.GetMessage(), "calls that this node forwards at one time: at most 8") {
		t.Errorf("in a full lane a third address has %d calls: %v", n, e)
	}
	for range 4 {
		l.leave("10.0.0.1")
	}
	if n, _ := fill(""); n != 4 {
		t.Errorf("this process has %d of 4 free places", n)
	}
	if n := len(l.mu.from); n != 2 {
		t.Errorf("%d addresses are remembered, want 2", n)
	}
}
