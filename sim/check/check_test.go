package check

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A service is a real machine whose log is recorded in a book.
type service struct {
	t     interface{ Fatalf(string, ...any) }
	m     *machine.Machine
	book  *Book
	index uint64
}

func newService(t interface{ Fatalf(string, ...any) }) *service {
	s := &service{t: t, m: machine.New(), book: NewBook(1, nil), index: 1}
	s.mustApply(command.SetLimits{Limits: command.DefaultLimits()}, command.SetTokenFloor{Floor: 100})
	return s
}

// apply gives the commands to the machine, lets tamper modify the output, and returns the book's
// verdict on it.
func (s *service) apply(tamper func(*command.Output), cs ...command.Command) (command.Output, *Violation) {
	s.index++
	e := &command.Entry{Commands: cs}
	out := s.m.Apply(s.index, 1, e)
	if tamper != nil {
		tamper(&out)
		for i := range out.Events { // so that the numbers are not what is wrong
			out.Events[i].Number = s.book.table.event + uint64(i) + 1
		}
	}
	_, v := s.book.Apply(Applied{Node: 1, Index: s.index, Term: 1, Entry: e, Encoded: command.AppendEntry(nil, e), Output: &out})
	return out, v
}

func (s *service) mustApply(cs ...command.Command) command.Output {
	out, v := s.apply(nil, cs...)
	if v != nil {
		s.t.Fatalf("the book refuses what the machine did: %v", v)
	}
	return out
}

func (s *service) open() command.SessionID {
	return s.mustApply(command.OpenSession{TTL: 10_000, ClientNumbered: true}).Results[0].Session
}

func exclusive(id command.SessionID, seq uint64, names ...string) command.Acquire {
	return command.Acquire{Session: id, Seq: seq, Floor: 1, Spec: command.Spec{Names: names}}
}

func wantBroken(t *testing.T, v *Violation, want Promise) {
	t.Helper()
	if v == nil {
		t.Fatalf("nothing was found, want: %s", want)
	}
	if v.Promise != want {
		t.Fatalf("found %q, want %q", v, want)
	}
}

// grant replaces the Granted events of an output.
func grant(name string, id command.SessionID, seq uint64, token command.Token) func(*command.Output) {
	return func(o *command.Output) {
		o.Events = []command.Event{{Kind: command.EventGranted, Name: name, Claim: command.ClaimID{Session: id, Seq: seq}, Token: token}}
	}
}

func TestABookFindsASecondHolder(t *testing.T) {
	s := newService(t)
	a, b := s.open(), s.open()
	s.mustApply(exclusive(a, 1, "x"))
	_, v := s.apply(grant("x", b, 1, 900), exclusive(b, 1, "x"))
	wantBroken(t, v, Exclusion)
}

func TestABookFindsAWaiterThatWasPassed(t *testing.T) {
	s := newService(t)
	a, b, c := s.open(), s.open(), s.open()
	held := s.mustApply(exclusive(a, 1, "x"))
	s.mustApply(exclusive(b, 1, "x"))
	s.mustApply(exclusive(c, 1, "x"))
	_, v := s.apply(grant("x", c, 1, 900), command.Release{Session: a, Seq: 1, Token: held.Results[0].Claim.Token})
	wantBroken(t, v, FIFO)
}

func TestABookFindsATokenThatDidNotRise(t *testing.T) {
	s := newService(t)
	a, b := s.open(), s.open()
	token := s.mustApply(exclusive(a, 1, "x")).Results[0].Claim.Token
	_, v := s.apply(grant("y", b, 1, token), exclusive(b, 1, "y"))
	wantBroken(t, v, Tokens)
}

func TestABookFindsAGrantToAnEndedSession(t *testing.T) {
	s := newService(t)
	a := s.open()
	s.mustApply(command.Expire{Term: 1, Sessions: []command.SessionID{a}})
	_, v := s.apply(grant("x", a, 1, 900), exclusive(a, 1, "x"))
	wantBroken(t, v, DeadSession)
}

func TestABookFindsALostWakeUp(t *testing.T) {
	s := newService(t)
	a, b := s.open(), s.open()
	held := s.mustApply(exclusive(a, 1, "x"))
	s.mustApply(exclusive(b, 1, "x"))
	forget := func(o *command.Output) { o.Events = nil }
	_, v := s.apply(forget, command.Release{Session: a, Seq: 1, Token: held.Results[0].Claim.Token})
	wantBroken(t, v, LostWakeUp)
}

func TestABookFindsAWaiterThatWasNotTold(t *testing.T) {
	s := newService(t)
	a, b := s.open(), s.open()
	held := s.mustApply(exclusive(a, 1, "x"))
	s.mustApply(exclusive(b, 1, "x"))
	_, v := s.apply(func(o *command.Output) { o.Changes = nil }, command.Release{Session: a, Seq: 1, Token: held.Results[0].Claim.Token})
	wantBroken(t, v, LostWakeUp)
}

func TestABookFindsARequestThatTookEffectTwice(t *testing.T) {
	s := newService(t)
	a := s.open()
	s.mustApply(exclusive(a, 1, "x"))
	_, v := s.apply(grant("x", a, 1, 900), exclusive(a, 1, "x"))
	wantBroken(t, v, AtMostOnce)
}

func TestABookFindsAnEarlyExpiry(t *testing.T) {
	s := newService(t)
	a := s.open()
	s.book.Renewed(a, 100*time.Second, 10*time.Second)
	s.book.SetNow(105 * time.Second)
	_, v := s.apply(nil, command.Expire{Term: 1, Sessions: []command.SessionID{a}})
	wantBroken(t, v, EarlyExpiry)
}

func TestABookFindsAnotherEntryAtOneIndex(t *testing.T) {
	s := newService(t)
	a := s.open()
	other := &command.Entry{Commands: []command.Command{exclusive(a, 7, "y")}}
	out := command.Output{Results: []command.Result{{}}}
	_, v := s.book.Apply(Applied{Node: 2, Index: s.index, Term: 1, Entry: other, Encoded: command.AppendEntry(nil, other), Output: &out})
	wantBroken(t, v, Survival)
}

func TestABookFindsAHolderThatBelievesTooLong(t *testing.T) {
	s := newService(t)
	a, b := s.open(), s.open()
	token := s.mustApply(exclusive(a, 1, "x")).Results[0].Claim.Token
	s.mustApply(exclusive(b, 1, "x"))
	id := command.ClaimID{Session: a, Seq: 1}
	if v := s.book.Believed(id, token); v != nil {
		t.Fatalf("a holder believes rightly: %v", v)
	}
	s.mustApply(command.Expire{Term: 1, Sessions: []command.SessionID{a}})
	wantBroken(t, s.book.Believed(id, token), HoldersView)
}

func TestABookFindsAGapInTheHistory(t *testing.T) {
	s := newService(t)
	a := s.open()
	s.index++
	e := &command.Entry{Commands: []command.Command{exclusive(a, 1, "x")}}
	out := s.m.Apply(s.index, 1, e)
	out.Events[0].Number++
	_, v := s.book.Apply(Applied{Node: 1, Index: s.index, Term: 1, Entry: e, Output: &out})
	wantBroken(t, v, History)
}

func TestABookFindsARenewalByADeposedLeader(t *testing.T) {
	s := newService(t)
	s.book.SetNow(5 * time.Second)
	s.index++
	if _, v := s.book.Apply(Applied{Node: 2, Index: s.index, Term: 2, Output: &command.Output{}}); v != nil {
		t.Fatal(v)
	}
	if v := s.book.Renews(1, 4*time.Second); v != nil {
		t.Errorf("it had read the keepalive before the new leader was there: %v", v)
	}
	wantBroken(t, s.book.Renews(1, 6*time.Second), EarlyExpiry)
}

func TestABookFindsWhatIsOverdue(t *testing.T) {
	s := newService(t)
	a, b := s.open(), s.open()
	s.mustApply(exclusive(a, 1, "x"))
	s.mustApply(command.Acquire{Session: b, Seq: 1, Floor: 1, Spec: command.Spec{Names: []string{"x"}, HasWait: true, Wait: 1000}})
	if v := s.book.Overdue(2*time.Second, 0); v != nil {
		t.Errorf("nothing is overdue yet: %v", v)
	}
	wantBroken(t, s.book.Overdue(4*time.Second, 0), Liveness)
	s.mustApply(command.EndWait{Term: 1, Claims: []command.ClaimID{{Session: b, Seq: 1}}})
	if v := s.book.Overdue(12*time.Second, 0); v != nil {
		t.Errorf("the leases run: %v", v)
	}
	wantBroken(t, s.book.Overdue(16*time.Second, 0), Liveness)
}

func TestABookExcusesAHolderThatWasRevokedNow(t *testing.T) {
	s := newService(t)
	a, b := s.open(), s.open()
	token := s.mustApply(exclusive(a, 1, "x")).Results[0].Claim.Token
	s.mustApply(exclusive(b, 1, "x"))
	id := command.ClaimID{Session: a, Seq: 1}
	s.mustApply(command.Revoke{Claim: id, Token: token, By: "x", Reason: "y", Now: true})
	if v := s.book.Believed(id, token); v != nil {
		t.Errorf("promise 3 excepts --now: %v", v)
	}
}

func TestABookFindsAReadThatMissedWhatWasApplied(t *testing.T) {
	s := newService(t)
	a := s.open()
	s.mustApply(exclusive(a, 1, "x"))
	wantBroken(t, s.book.Read("x", s.book.Last(), nil), StaleRead)
}

func TestABookFindsAnAcknowledgementThatIsNotInTheLog(t *testing.T) {
	s := newService(t)
	a := s.open()
	wantBroken(t, s.book.Told(a, command.ClaimStatus{Seq: 3, State: command.Granted, Token: 5}), Survival)
}

// TestTheBookAgreesWithTheMachine runs random commands through both. They were written
// independently, so an error would have to be made twice to be missed.
func TestTheBookAgreesWithTheMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newService(t)
		sessions := []command.SessionID{s.open(), s.open(), s.open()}
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			var cs []command.Command
			for range rapid.IntRange(1, 4).Draw(t, "commands") {
				cs = append(cs, anyCommand(t, sessions, s.book))
			}
			for _, r := range s.mustApply(cs...).Results {
				if r.Session != (command.SessionID{}) {
					sessions = append(sessions[1:], r.Session)
				}
			}
		}
	})
}

func anyCommand(t *rapid.T, sessions []command.SessionID, book *Book) command.Command {
	id := command.ClaimID{Session: rapid.SampledFrom(sessions).Draw(t, "session"), Seq: rapid.Uint64Range(1, 6).Draw(t, "seq")}
	var token command.Token
	if c := book.table.claim(id); c != nil {
		token = c.token
	}
	now := rapid.Bool().Draw(t, "now")
	switch rapid.SampledFrom(strings.Split("acquire acquire acquire release release cancel expire end-wait end-delay revoke revoke-session close open", " ")).Draw(t, "kind") {
	case "acquire":
		return command.Acquire{Session: id.Session, Seq: id.Seq, Floor: rapid.Uint64Range(0, id.Seq).Draw(t, "floor"), Spec: spec(t)}
	case "release":
		return command.Release{Session: id.Session, Seq: id.Seq, Token: token}
	case "cancel":
		return command.Cancel{Session: id.Session, Seq: id.Seq}
	case "expire":
		return command.Expire{Term: rapid.Uint64Range(1, 2).Draw(t, "term"), Sessions: []command.SessionID{id.Session, sessions[0]}}
	case "end-wait":
		return command.EndWait{Term: 1, Claims: []command.ClaimID{id}}
	case "end-delay":
		return command.EndDelay{Term: 1, Claims: []command.ClaimID{id}}
	case "revoke":
		return command.Revoke{Claim: id, Token: token, By: "o", Reason: "r", Now: now}
	case "revoke-session":
		return command.Revoke{Claim: command.ClaimID{Session: id.Session}, By: "o", Reason: "r", Now: now}
	case "close":
		return command.CloseSession{Session: id.Session}
	default:
		return command.OpenSession{TTL: 1000, ClientNumbered: true}
	}
}

func spec(t *rapid.T) command.Spec {
	name := rapid.SampledFrom([]string{"a", "b", "c"})
	s := command.Spec{Names: []string{name.Draw(t, "name")}, LockDelay: command.Millis(rapid.IntRange(0, 1).Draw(t, "delay"))}
	switch rapid.IntRange(0, 5).Draw(t, "mode") {
	case 0, 1:
		s.Mode = command.Shared
	case 2:
		s.Mode, s.Capacity, s.Weight = command.Permits, 3, rapid.Uint32Range(1, 3).Draw(t, "weight")
	case 3:
		if other := name.Draw(t, "also"); other != s.Names[0] {
			s.Names = append(s.Names, other)
		}
	}
	if rapid.Bool().Draw(t, "bounded") {
		s.HasWait, s.Wait = true, command.Millis(rapid.IntRange(0, 1).Draw(t, "wait"))
	}
	return s
}
