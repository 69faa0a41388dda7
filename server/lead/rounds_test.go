package lead

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

func TestTheNumberOfHeldRequestsIsBounded(t *testing.T) {
	var s rounds
	for range maxHeldReads / 2 {
		if !s.hold(held{Request: Request{Body: ReadLock{}}, cost: 1}, true) {
			t.Fatal("refused below the bound")
		}
	}
	if s.hold(held{Request: Request{Body: ReadLock{}}, cost: 1}, true) {
		t.Error("a read was held beyond the bound")
	}
	other := Origin{Connection: 2}
	for range maxHeldReads / 4 {
		if !s.hold(held{Request: Request{Body: ReadLock{}, From: other}, cost: 1}, true) {
			t.Fatal("one connection takes what is another's")
		}
	}
	if !s.hold(held{Request: Request{Body: KeepAlive{}, Received: 5}}, false) {
		t.Error("reads keep keepalives out")
	}
	if s.oldest() != 5 {
		t.Errorf("oldest keepalive at %v, want 5", s.oldest())
	}
}

// crowded returns a machine whose name "job" has many shared holders and, after an exclusive claim,
// waiters.
func crowded(holders, waiters int) *machine.Machine {
	m := machine.New()
	limits := command.DefaultLimits()
	limits.ClaimsPerSession, limits.RequestWindow = 1_000_000, 1_000_000
	out := m.Apply(1, 1, &command.Entry{Commands: []command.Command{
		command.SetLimits{Limits: limits}, command.SetTokenFloor{Floor: 1}, command.OpenSession{TTL: 1, ClientNumbered: true},
	}})
	e := command.Entry{}
	for seq := range uint64(holders + waiters) {
		a := command.Acquire{Session: out.Results[2].Session, Seq: seq + 1, Spec: command.Spec{Names: []string{"job"}}}
		if int(seq) < holders {
			a.Spec.Mode = command.Shared
		}
		e.Commands = append(e.Commands, a)
	}
	m.Apply(2, 1, &e)
	return m
}

func TestReadsAreBoundedByTheirWork(t *testing.T) {
	m := crowded(50_000, 5_000)
	for _, c := range []struct {
		body Body
		most int // that the loop may have to serve in one turn
	}{
		{ReadHistory{Name: "job", Limit: 1_000}, 62},
		{ReadLocks{Limit: 1000}, 65},
		{ReadSessions{Limit: 1000}, 53},
		{ReadLock{Name: "job", Waiters: 16_384}, 64},
		{ReadLock{Name: "job", Holders: 1_000}, 300},
		{ReadLocks{Limit: 100}, 150},
		{Revoke{Name: "job"}, 2},
	} {
		var s rounds
		n := 0
		for n <= c.most && s.hold(held{Request: Request{Body: c.body}, cost: cost(c.body, m)}, true) {
			n++
		}
		if n < c.most/2 || n > c.most {
			t.Errorf("%T: %d were held at a time, at most %d may be", c.body, n, c.most)
		}
		s.release(s.waiting)
		if s.work != 0 || s.held != 0 {
			t.Errorf("%T: %d units of %d requests are left", c.body, s.work, s.held)
		}
	}
}
