package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

// bounded returns a machine at a feature level whose state may have 64 KiB, and a session of each
// kind.
func bounded(level uint32) (*Machine, []command.SessionID) {
	m := New()
	l := command.DefaultLimits()
	l.StateBytes = 64 << 10
	out := apply(m,
		command.SetLimits{Limits: l.At(level, l)}, command.SetTokenFloor{Floor: 1},
		command.OpenSession{TTL: 1, ClientNumbered: true}, command.OpenSession{TTL: 1},
	)
	return m, []command.SessionID{out.Results[2].Session, out.Results[3].Session}
}

// takeLong takes long names until it is refused, and returns how many it got.
func takeLong(t *testing.T, m *Machine, numbered bool, id command.SessionID) (n int, refused command.Result) {
	t.Helper()
	for ; n < 1_000; n++ {
		a := command.Acquire{Session: id, Spec: command.Spec{Names: []string{fmt.Sprintf("%03d/%s", n, strings.Repeat("n", 400))}}}
		if numbered {
			a.Seq = uint64(n + 1)
		}
		if r := apply(m, a).Results[0]; r.Code != command.OK {
			if got, ok := m.Check(a); !numbered && (ok || got.Limit != r.Limit) {
				t.Errorf("applied it is refused with %v, before with %v", r, got)
			}
			return n, r
		}
	}
	return n, command.Result{}
}

func TestTheStateIsBoundedInBytes(t *testing.T) {
	for i, numbered := range []bool{true, false} {
		m, ids := bounded(3)
		n, refused := takeLong(t, m, numbered, ids[i])
		want := "bytes of sessions and claims of the whole cluster: at most 65536"
		if n < 100 || n > 160 || refused.Code != command.QuotaExceeded || refused.Limit != want {
			t.Errorf("%d claims of some 500 bytes, then %v", n, refused)
		}
		if got := m.Counts().Bytes; got > 66<<10 || got < 64<<10-600 {
			t.Errorf("%d bytes are counted", got)
		}
		big := command.OpenSession{TTL: 1, Metadata: []command.Label{{Key: "k", Value: strings.Repeat("v", 1000)}}}
		if r := apply(m, big).Results[0]; r.Code != command.QuotaExceeded || r.Limit != want {
			t.Errorf("a session more: %v", r)
		}
		if r, ok := m.Check(big); ok || r.Limit != want {
			t.Errorf("a session more, before it is proposed: %v", r)
		}
		if got := restored(t, m).Counts().Bytes; got != m.Counts().Bytes {
			t.Errorf("%d bytes, restored %d", m.Counts().Bytes, got)
		}
		apply(m, command.CloseSession{Session: ids[i]})
		if again, _ := takeLong(t, m, !numbered, ids[1-i]); again != n {
			t.Errorf("%d claims after the session was closed, %d before", again, n)
		}
	}
}

func TestBelowLevelThreeNothingIsBoundedInAll(t *testing.T) {
	m, ids := bounded(2)
	if n, refused := takeLong(t, m, true, ids[0]); n != 1_000 {
		t.Errorf("%d claims, then %v", n, refused)
	}
	if l := m.Limits(); l.StateBytes != 0 || l.ClaimsTotal != 0 {
		t.Errorf("the limits have %d bytes and %d claims", l.StateBytes, l.ClaimsTotal)
	}
	l := command.DefaultLimits()
	l.StateBytes = 64 << 10
	apply(m, command.SetLimits{Limits: l}) // existing claims stay
	if r := apply(m, exclusive(ids[0], 1_001, "one more")).Results[0]; r.Code != command.QuotaExceeded {
		t.Errorf("above the bound from level 3 on: %v", r)
	}
	if err := m.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// Neither cancelled numbers that were never used nor refused claims make the state larger than it
// may be.
func TestWhatIsRememberedIsBoundedInBytesToo(t *testing.T) {
	m, ids := bounded(3)
	var sessions []command.SessionID
	for range 8 {
		sessions = append(sessions, apply(m, command.OpenSession{TTL: 1, ClientNumbered: true}).Results[0].Session)
	}
	refused := 0
	for _, id := range append(sessions, ids[0]) {
		for seq := uint64(1); seq <= 500; seq++ {
			c := command.Cancel{Session: id, Seq: seq}
			checked, ok := m.Check(c)
			if r := apply(m, c).Results[0]; r.Code != command.OK {
				if r.Code != command.QuotaExceeded || ok || checked.Limit != r.Limit {
					t.Fatalf("cancel refused with %v, before with %v", r, checked)
				}
				refused++
			}
			apply(m, command.Acquire{Session: id, Seq: seq + 500, Spec: command.Spec{Names: []string{"job"}}}) // refused once the state is full
		}
	}
	if got := m.Counts().Bytes; refused == 0 || got > 64<<10 {
		t.Errorf("%d bytes are counted, %d numbers refused", got, refused)
	}
	if err := m.CheckInvariants(); err != nil {
		t.Error(err)
	}
	// What is refused is not remembered: the same request is right when there is room.
	for _, id := range sessions {
		apply(m, command.CloseSession{Session: id})
	}
	if r := apply(m, exclusive(ids[0], 400, "job")).Results[0]; r.Code != command.OK {
		t.Errorf("with room again: %v", r)
	}
}
