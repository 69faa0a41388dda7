package machine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-dev/lockstep/server/command"
	"pgregory.net/rapid"
)

// A script makes meaningful random commands: it knows the sessions that were opened and what they
// hold, as far as the outputs show.
type script struct {
	t        *rapid.T
	sessions []command.SessionID
	numbered map[command.SessionID]bool
	claims   []command.ClaimID // all that were ever requested or reported
	tokens   map[command.ClaimID]command.Token
	sent     []command.Command // for duplicates
	random   uint64
	delayed  []command.ClaimID // with a delay that was started
	level    uint32            // feature level of the last limits set; zero: none were
}

func newScript(t *rapid.T) *script {
	return &script{t: t, numbered: map[command.SessionID]bool{}, tokens: map[command.ClaimID]command.Token{}}
}

func (s *script) session() command.SessionID {
	if len(s.sessions) == 0 {
		return command.SessionID{1}
	}
	return pick(s.t, "session", s.sessions)
}

func pick[T any](t *rapid.T, label string, list []T) T {
	return list[rapid.IntRange(0, len(list)-1).Draw(t, label)]
}

func (s *script) claim() command.ClaimID {
	if len(s.claims) == 0 {
		return command.ClaimID{Session: s.session(), Seq: 1}
	}
	// Usually a late one: those are live.
	back := rapid.IntRange(1, len(s.claims)).Draw(s.t, "claim")
	return s.claims[len(s.claims)-back]
}

const testTerm = 3

func (s *script) command() command.Command {
	kinds := []string{
		"open", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "release", "release", "release", "cancel",
		"again", "close", "expire", "wait", "delay", "revoke", "revoke session", "floor", "limits", "checkpoint", "renew",
	}
	kind := pick(s.t, "kind", kinds)
	if len(s.sessions) < 2 {
		kind = "open"
	}
	switch kind {
	case "open":
		s.random++
		return command.OpenSession{
			TTL: 1000, Secret: command.Secret{byte(s.random)}, Hashed: s.level >= command.SecretLevel && rapid.Bool().Draw(s.t, "hashed"),
			Random: [8]byte{6: byte(s.random % 3 * 7), 7: byte(s.random % 3 * 80)}, ClientNumbered: rapid.IntRange(0, 3).Draw(s.t, "numbered") > 0,
			Metadata: []command.Label{{Key: "host", Value: fmt.Sprint(s.random)}},
		}
	case "acquire":
		return s.acquire()
	case "release":
		id := s.claim()
		token := s.tokens[id]
		if rapid.IntRange(0, 9).Draw(s.t, "wrong token") == 9 {
			token++
		}
		return command.Release{Session: id.Session, Seq: id.Seq, Token: token}
	case "cancel":
		id := s.claim()
		return command.Cancel{Session: id.Session, Seq: id.Seq + rapid.Uint64Range(0, 1).Draw(s.t, "ahead"), Floor: s.floor(), Seen: s.seen()}
	case "again":
		return pick(s.t, "again", s.sent)
	default:
		return s.leader(kind)
	}
}

func (s *script) leader(kind string) command.Command {
	term := rapid.SampledFrom([]uint64{testTerm, testTerm, testTerm, testTerm - 1}).Draw(s.t, "term")
	switch kind {
	case "close":
		return command.CloseSession{Session: s.session()}
	case "expire":
		return command.Expire{Term: term, Sessions: []command.SessionID{s.session(), s.session()}}
	case "wait":
		return command.EndWait{Term: term, Claims: []command.ClaimID{s.claim(), s.claim(), s.claim()}}
	case "delay":
		return command.EndDelay{Term: term, Claims: append([]command.ClaimID{s.claim()}, s.delayed...)}
	case "revoke":
		id := s.claim()
		return command.Revoke{Claim: id, Token: s.tokens[id], By: "ann", Reason: "test", Now: rapid.Bool().Draw(s.t, "now")}
	case "revoke session":
		return command.Revoke{Claim: command.ClaimID{Session: s.session()}, By: "ann", Now: rapid.Bool().Draw(s.t, "now")}
	case "floor":
		return command.SetTokenFloor{Floor: command.Token(rapid.IntRange(0, 100).Draw(s.t, "token floor"))}
	case "checkpoint", "renew":
		if s.level >= command.LeaseLevel {
			return s.leases(kind, term)
		}
	}
	return s.limits()
}

func (s *script) leases(kind string, term uint64) command.Command {
	if kind == "renew" {
		return command.RenewLeases{Term: term, Sessions: []command.SessionID{s.session(), s.session()}}
	}
	at := func() command.Millis { return command.Millis(rapid.Uint64Range(0, 50).Draw(s.t, "at")) }
	c := command.CheckpointLeases{Term: term, Clock: at(), Sessions: []command.SessionEnd{{Session: s.session(), At: at()}, {Session: s.session(), At: at()}}}
	for _, id := range append([]command.ClaimID{s.claim()}, s.delayed...) {
		c.Delays = append(c.Delays, command.DelayEnd{Claim: id, At: at()})
	}
	return c
}

func (s *script) limits() command.Command {
	l := command.DefaultLimits()
	l.WaitersPerName = uint32(rapid.IntRange(1, 6).Draw(s.t, "waiters"))
	l.ClaimsPerSession = uint32(rapid.IntRange(16, 20).Draw(s.t, "claims"))
	l.RequestWindow = uint32(rapid.IntRange(4, 20).Draw(s.t, "window"))
	l.RememberedClaims = uint32(rapid.IntRange(1, 4).Draw(s.t, "remembered"))
	l.HistoryBytes = 64 << 10
	fresh := command.DefaultLimits()
	fresh.ClaimsTotal = uint32(rapid.IntRange(6, 40).Draw(s.t, "claims of all"))
	s.level = uint32(rapid.IntRange(int(max(1, s.level)), command.FeatureLevel).Draw(s.t, "level"))
	return command.SetLimits{Limits: l.At(s.level, fresh)}
}

func (s *script) floor() uint64 { return rapid.Uint64Range(0, 6).Draw(s.t, "floor") }
func (s *script) seen() uint64  { return rapid.Uint64Range(0, 6).Draw(s.t, "seen") }

func (s *script) acquire() command.Command {
	a := command.Acquire{Session: s.session(), Floor: s.floor(), Seen: s.seen()}
	if s.numbered[a.Session] {
		a.Seq = rapid.Uint64Range(1, 12).Draw(s.t, "seq")
	} else {
		a.Nonce = rapid.SampledFrom([]string{"", "a", "b"}).Draw(s.t, "nonce")
	}
	names := []string{"t/a", "t/b", "t/c"}
	spec := &a.Spec
	spec.Names = []string{pick(s.t, "name", names)}
	switch rapid.IntRange(0, 7).Draw(s.t, "mode") {
	case 0, 1:
		spec.Mode = command.Shared
	case 2:
		spec.Mode, spec.Capacity = command.Permits, 3
		spec.Weight = uint32(rapid.IntRange(1, 3).Draw(s.t, "weight"))
		spec.Names = []string{"t/permits"}
	case 3:
		i := rapid.IntRange(0, 2).Draw(s.t, "without")
		spec.Names = []string{names[(i+1)%3], names[(i+2)%3]}
	}
	if rapid.IntRange(0, 3).Draw(s.t, "has wait") == 0 {
		spec.HasWait, spec.Wait = true, command.Millis(rapid.IntRange(0, 1).Draw(s.t, "wait")*500)
	}
	if rapid.IntRange(0, 3).Draw(s.t, "has delay") == 0 {
		spec.LockDelay = 2000
	}
	return a
}

func (s *script) entry(index uint64) command.Entry {
	e := command.Entry{Header: command.Header{Proposer: 1, Batch: index, Wall: command.WallMillis(1000 * index)}}
	if index == 1 {
		e.Commands = []command.Command{command.SetTokenFloor{Floor: 5}}
	}
	for range rapid.IntRange(1, 4).Draw(s.t, "commands") {
		c := s.command()
		e.Commands = append(e.Commands, c)
		s.sent = append(s.sent, c)
	}
	return e
}

// heard records what clients and the leader learn.
func (s *script) heard(e *command.Entry, out *command.Output) {
	for i, r := range out.Results {
		switch c := e.Commands[i].(type) {
		case command.OpenSession:
			if r.Code == command.OK {
				s.sessions = append(s.sessions, r.Session)
				s.numbered[r.Session] = c.ClientNumbered
			}
		case command.Acquire:
			if r.Claim.Seq != 0 {
				id := command.ClaimID{Session: c.Session, Seq: r.Claim.Seq}
				s.claims = append(s.claims, id)
				s.tokens[id] = r.Claim.Token
			}
		}
	}
	for _, c := range out.Changes {
		if c.Claim.State == command.Granted {
			s.tokens[command.ClaimID{Session: c.Session, Seq: c.Claim.Seq}] = c.Claim.Token
		}
	}
	for _, t := range out.Timers {
		if t.Kind == command.DelayStarted {
			s.delayed = append(s.delayed, t.Claim)
		}
	}
}

// TestReplicasAgreeAndKeepThePromises runs random commands on two machines. The second gets them
// through the codec. Meanwhile a snapshot is captured while commands go on.
func TestReplicasAgreeAndKeepThePromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, book, s := New(), New(), newBook(), newScript(t)
		entries := rapid.IntRange(1, 60).Draw(t, "entries")
		walk := walker{t: t, from: uint64(rapid.IntRange(1, entries).Draw(t, "snapshot after"))}
		for index := uint64(1); index <= uint64(entries); index++ {
			e := s.entry(index)
			encoded := command.AppendEntry(nil, &e)
			decoded, err := command.DecodeEntry(encoded)
			if err != nil {
				t.Fatalf("entry %d: %v", index, err)
			}
			out, twin := a.Apply(index, testTerm, &e), b.Apply(index, testTerm, &decoded)
			if diff := cmp.Diff(out, twin); diff != "" || a.Hash() != b.Hash() {
				t.Fatalf("entry %d: replicas differ: %s", index, diff)
			}
			mustHold(t, a.CheckTouched())
			mustHold(t, a.CheckInvariants())
			mustHold(t, book.entry(&e, &out))
			mustHold(t, book.remembered(a, &e, &out))
			s.heard(&e, &out)
			walk.step(a, b, &decoded)
		}
		walk.finish(a, b)
	})
}

func mustHold(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// A walker captures a machine from one entry on, a few parts after each entry, restores a third
// replica from the result, and lets that one apply the rest.
type walker struct {
	t       *rapid.T
	from    uint64
	capture *Capture
	got     []byte
	want    []byte // of the twin, in one go
	done    bool
	tail    []*command.Entry
}

func (w *walker) step(m, twin *Machine, e *command.Entry) {
	switch index := m.Index(); {
	case index < w.from:
		return
	case index == w.from:
		w.capture = m.StartCapture()
		w.want = snapshot(twin)
	default:
		w.tail = append(w.tail, e)
	}
	for range rapid.IntRange(0, 60).Draw(w.t, "parts") {
		w.next()
	}
}

func (w *walker) next() {
	if w.done {
		return
	}
	chunk, last := w.capture.Next()
	w.got, w.done = append(w.got, chunk...), last
}

func (w *walker) finish(m, twin *Machine) {
	for !w.done {
		w.next()
	}
	if !bytes.Equal(w.got, w.want) {
		w.t.Fatal("the snapshot captured while commands went on is not the state where it began")
	}
	third, err := Restore(bytes.NewReader(w.got))
	if err != nil {
		w.t.Fatal(err)
	}
	for i, e := range w.tail {
		third.Apply(w.from+uint64(i)+1, testTerm, e)
	}
	whole := snapshot(m)
	if !bytes.Equal(snapshot(twin), whole) {
		w.t.Fatal("replicas that applied the same have different snapshots")
	}
	if !bytes.Equal(snapshot(third), whole) {
		w.t.Fatal("a snapshot and the entries behind it give another state than all entries")
	}
	if diff := cmp.Diff(m.Timers(), third.Timers()); diff != "" {
		w.t.Fatalf("the timers of the restored machine differ: %s", diff)
	}
}
