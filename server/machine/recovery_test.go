package machine

import (
	"bytes"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"pgregory.net/rapid"
)

const (
	testStamp = command.WallMillis(1_800_000_000_000)
	testWait  = command.Millis(300_000)
)

func renewed(t *testing.T, state []byte, wait command.Millis) *Machine {
	t.Helper()
	m, err := Restore(bytes.NewReader(state))
	if err != nil {
		t.Fatal(err)
	}
	m.Renew(testStamp, wait)
	if err := m.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestARenewedMachineHasNoSessionAndNoClaim(t *testing.T) {
	m := busyMachine()
	before, next := m.Index(), m.Counts().NextToken
	n := renewed(t, snapshot(m), testWait)
	counts := n.Counts()
	if counts.Sessions+counts.Holders+counts.Waiters+counts.Closing+counts.Names != 0 {
		t.Errorf("left over: %+v", counts)
	}
	if len(n.Timers()) != 0 {
		t.Errorf("timers run: %v", n.Timers())
	}
	if n.Index() != before+1 || counts.NextToken != next {
		t.Errorf("index %d after %d, next token %d after %d", n.Index(), before, counts.NextToken, next)
	}
	for i := range m.shards {
		for _, s := range sortedSessions(&m.shards[i].live) {
			if code, by, _ := n.SessionEnding(s.id); code != command.SessionRevoked || by != "restore" {
				t.Errorf("session %v ended with %v by %q", s.id, code, by)
			}
		}
	}
}

func TestNodesThatRenewTheSameBackupHaveTheSameState(t *testing.T) {
	state := snapshot(busyMachine())
	if !bytes.Equal(snapshot(renewed(t, state, testWait)), snapshot(renewed(t, state, testWait))) {
		t.Error("two nodes differ")
	}
	m := renewed(t, state, testWait)
	if again := restored(t, m); again.Recovery() != m.Recovery() || !bytes.Equal(snapshot(again), snapshot(m)) {
		t.Errorf("after a restart %+v, before %+v", again.Recovery(), m.Recovery())
	}
}

func TestARenewedMachineGrantsNothingBeforeTheFloorAndTheEndOfTheWait(t *testing.T) {
	floor := command.SetTokenFloor{Floor: 1 << 40}
	for name, order := range map[string][]command.Command{
		"floor first": {floor, command.EndRecovery{Term: 1}}, "wait first": {command.EndRecovery{Term: 1}, floor},
	} {
		m := renewed(t, snapshot(busyMachine()), testWait)
		s := apply(m, command.OpenSession{TTL: 1, ClientNumbered: true}).Results[0].Session
		refused := func(after string) {
			if r := apply(m, exclusive(s, 1, "new")).Results[0]; r.Code != command.NotReady {
				t.Errorf("%s: after %s the answer is %v", name, after, r.Code)
			}
		}
		refused("the restore")
		apply(m, order[0])
		refused("half of the recovery")
		apply(m, command.EndRecovery{Term: 9}) // of a deposed leader
		if name == "floor first" {
			refused("an end of another term")
		}
		apply(m, order[1])
		r := apply(m, exclusive(s, 1, "new")).Results[0]
		if r.Claim.State != command.Granted || r.Claim.Token != floor.Floor {
			t.Errorf("%s: %v with token %d", name, r.Claim.State, r.Claim.Token)
		}
		if m.Recovery() != (Recovery{}) {
			t.Errorf("%s: left over %+v", name, m.Recovery())
		}
	}
}

func TestAFloorBelowTheTokensGivenStillRaisesThem(t *testing.T) {
	m := renewed(t, snapshot(busyMachine()), 0)
	next := m.Counts().NextToken
	apply(m, command.SetTokenFloor{Floor: 1})
	if got := m.Counts().NextToken; got != next+1 || m.Recovery().Pending() {
		t.Errorf("next token %d after %d, %+v", got, next, m.Recovery())
	}
}

func TestTheWaitCoversTheLongestBeliefOfTheBackup(t *testing.T) {
	m, ids := opened(1)
	id := apply(m, command.OpenSession{TTL: testWait + 5, ClientNumbered: true}).Results[0].Session
	apply(m, exclusive(ids[0], 1, "a"))
	if got := renewed(t, snapshot(m), testWait).Recovery().Wait; got != testWait+5 {
		t.Errorf("wait %d for a TTL of %d", got, testWait+5)
	}
	apply(m, command.Acquire{Session: id, Seq: 1, Spec: command.Spec{Names: []string{"b"}, LockDelay: testWait + 9}})
	if got := renewed(t, snapshot(m), testWait).Recovery().Wait; got != testWait+9 {
		t.Errorf("wait %d for a lock delay of %d", got, testWait+9)
	}
	if got := renewed(t, snapshot(m), 0).Recovery().Wait; got != 0 {
		t.Errorf("wait %d, but it was to be skipped", got)
	}
}

// TestRandomStatesAreRenewedWhole renews the state that a random script made, continues, and checks
// that every new token is above every old one, including those that the backup has not seen.
func TestRandomStatesAreRenewedWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScript(t)
		m := New()
		run := func(steps int) {
			for range steps {
				e := s.entry(m.Index() + 1)
				out := m.Apply(m.Index()+1, testTerm, &e)
				s.heard(&e, &out)
			}
		}
		run(rapid.IntRange(1, 60).Draw(t, "before"))
		state := snapshot(m)
		run(rapid.IntRange(0, 60).Draw(t, "behind the backup"))
		next := m.Counts().NextToken

		n, err := Restore(bytes.NewReader(state))
		mustHold(t, err)
		n.Renew(testStamp, 0)
		mustHold(t, n.CheckInvariants())
		if n.Counts().Sessions+n.Counts().Names != 0 {
			t.Fatalf("left over: %+v", n.Counts())
		}
		out := n.Apply(n.Index()+1, testTerm, &command.Entry{Commands: []command.Command{
			command.SetTokenFloor{Floor: next + 1}, command.OpenSession{TTL: 1, ClientNumbered: true},
		}})
		got := n.Apply(n.Index()+1, testTerm, &command.Entry{Commands: []command.Command{exclusive(out.Results[1].Session, 1, "x")}}).Results[0]
		if got.Claim.State != command.Granted || got.Claim.Token < next {
			t.Fatalf("%v with token %d, all below %d were given before", got.Claim.State, got.Claim.Token, next)
		}
	})
}

func TestARenewedMachineHasForgottenTheMembersOfTheOldCluster(t *testing.T) {
	m := busyMachine()
	m.members = []command.Member{{ID: 5, Name: "n9", Address: "127.0.0.1:7401"}}
	n := renewed(t, snapshot(m), testWait)
	if len(n.Members()) != 0 {
		t.Errorf("left over: %+v", n.Members())
	}
	if again := restored(t, n); again.Recovery() != n.Recovery() {
		t.Errorf("after a restart %+v, before %+v", again.Recovery(), n.Recovery())
	}
}
