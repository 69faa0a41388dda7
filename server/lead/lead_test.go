package lead

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

func TestALeadThatDoesNotLeadRefusesEverything(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	c.Depose()
	for _, b := range []Body{KeepAlive{}, k.acquireBody(spec("job")), ReadLock{Name: "job"}, Attach{Secret: k.secret, Number: 9}, RaiseLevel{}} {
		if a := k.call(b); refusal(a) != NotLeader {
			t.Errorf("%T was answered %+v", b, a)
		}
	}
	if s := c.Stats(); s != (Stats{}) {
		t.Errorf("left behind: %+v", s)
	}
}

func TestNothingIsServedBeforeAnEntryOfTheTermIsApplied(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	c.Depose()
	c.term++
	c.Start(c.term)
	if a := k.call(KeepAlive{}); refusal(a) != NotLeader {
		t.Errorf("answered %+v", a)
	}
	if c.index++; c.Apply(c.index, c.term-1, nil, nil) {
		t.Error("an entry of an earlier term made it serve")
	}
	if c.index++; !c.Apply(c.index, c.term, nil, nil) || !c.Serving() {
		t.Error("an entry of its term did not make it serve")
	}
	if a, _ := k.attach(0); a.(Attached).TTL != ttl {
		t.Errorf("attach answered %+v", a)
	}
}

func TestWhatWasProposedIsUncertainAfterTheLeadership(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	proposed := k.send(k.acquireBody(spec("job")))
	c.tick()
	waits := k.send(k.acquireBody(spec("other")))
	c.change()
	for _, tt := range []struct {
		tag       uint64
		uncertain bool
	}{{proposed, true}, {waits, false}} {
		a := c.answer(tt.tag)
		if r, ok := a.(Refused); !ok || r.Reason != NotLeader || r.Uncertain != tt.uncertain {
			t.Errorf("answered %+v, want uncertain %v", a, tt.uncertain)
		}
	}
}

func TestAnEntryThatIsNotAcceptedIsOfferedAgain(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	c.busy = true
	tag := k.send(k.acquireBody(spec("job")))
	c.run(100 * ms)
	if n := c.Stats().InFlight; n != 0 {
		t.Errorf("%d entries are in flight", n)
	}
	c.busy = false
	if a := c.answer(tag).(Claimed); a.Claim.State != command.Granted {
		t.Errorf("answered %+v", a)
	}
}

func TestTheGroupMakesMembershipChangesAndPlansLevels(t *testing.T) {
	c := newBed(t, func(_ *Config, limits *command.Limits) { *limits = limits.At(1, *limits) })
	operator := func(b Body) Answer { return c.call(Request{Stream: c.newStream(), Body: b}) }
	add := ChangeMembers{Change: AddLearner, Member: command.Member{ID: 4, Name: "n4", Address: "n4:1"}}
	if a := operator(add); a != (MembersChanged{Member: add.Member}) || len(c.asked) != 1 || c.asked[0] != add {
		t.Errorf("answered %+v, the group was asked %+v", a, c.asked)
	}
	c.noLevel = &Refused{Reason: LevelBusy, Limit: "wait"}
	if a := operator(RaiseLevel{To: command.FeatureLevel}); refusal(a) != LevelBusy {
		t.Errorf("answered %+v", a)
	}
	c.noLevel = nil
	want := LevelRaised{From: 1, To: command.FeatureLevel}
	if a := operator(RaiseLevel{To: command.FeatureLevel, Check: true}); a != want || c.machine.Limits().FeatureLevel != 1 {
		t.Errorf("the check was answered %+v", a)
	}
	if a := operator(RaiseLevel{To: command.FeatureLevel}); a != want || c.machine.Limits().FeatureLevel != command.FeatureLevel {
		t.Errorf("answered %+v", a)
	}
}

func TestTheLeaderLogsWhatTheGroupKnowsOfMembers(t *testing.T) {
	c := newBed(t, nil)
	m := command.Member{ID: 1, Name: "n1", Address: "n1:1"}
	c.members = []command.Command{command.SetMember{Member: m}}
	c.run(20 * ms)
	if got, ok := c.machine.Member(1); !ok || got.Name != "n1" {
		t.Errorf("the table has %+v", got)
	}
}
