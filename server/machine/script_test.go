package machine

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/lockstep-dev/lockstep/server/command"
)

// TestScripts plays the scripts in testdata. Each tells one story; people who do not read Go can
// check whether the answers are right. The commands:
//
//	open session=1 [ttl=10s] [numbered-by-service] [host=h]   sessions open on first use anyway
//	acquire lock=a|lock=(a,b) session=1 [shared] [permits=1/3] [try] [wait=5s] [delay=30s]
//	        [seq=n] [floor=n] [seen=n] [nonce=s] [purpose=p]   seq defaults to the session's next
//	release|cancel|revoke lock=a session=1 [seq=n] [token=n] [by=ann] [reason=r] [now]
//	close|revoke-session session=1        expire session=(2,1) [stale]
//	end-wait|end-delay lock=a session=1 [stale]
//	floor token=n      limits level=n waiters=n …
//	together           the commands on the lines below are in one entry
//	show lock=a [holders=n] [waiters=n]        list [prefix=p] [after=a] [limit=n]
//	history lock=a [limit=n]
//	changes session=1 [since=n]      claim session=1 seq=n      timers      counts
//	check COMMAND …    what would be refused before it is proposed
//	restore            continues with a machine restored from a snapshot
//	print changes|timers      shows them too from here on
//
// A claim is shown as its session, or as session.seq when it is not the first.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := newStage()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

// A stage runs scripts. It knows sessions by the names that the script gives them.
type stage struct {
	m         *Machine
	ids       map[string]command.SessionID
	names     map[command.SessionID]string
	seqs      map[command.SessionID]uint64
	byService map[command.SessionID]bool
	last      map[string]command.ClaimID // by session and lock: the last claim
	tokens    map[command.ClaimID]command.Token
	opening   string
	changes   bool
	timers    bool
	out       strings.Builder
	locks     map[command.ClaimID]string
}

func newStage() *stage {
	s := &stage{
		m: New(), ids: map[string]command.SessionID{}, names: map[command.SessionID]string{}, seqs: map[command.SessionID]uint64{},
		byService: map[command.SessionID]bool{}, last: map[string]command.ClaimID{}, tokens: map[command.ClaimID]command.Token{}, locks: map[command.ClaimID]string{},
	}
	s.m.Apply(1, testTerm, &command.Entry{Commands: []command.Command{command.SetTokenFloor{Floor: 1}}})
	return s
}

func (s *stage) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	switch d.Cmd {
	case "new":
		*s = *newStage()
		s.m = New() // without a floor
		return ""
	case "print":
		s.changes = s.changes || d.HasArg("changes")
		s.timers = s.timers || d.HasArg("timers")
		return ""
	case "restore":
		s.restore(t)
		return ""
	case "show", "list", "history", "changes", "claim", "timers", "counts":
		s.read(t, d)
		return s.text()
	case "check":
		inner := datadriven.TestData{Cmd: d.CmdArgs[0].Key, CmdArgs: d.CmdArgs[1:], Pos: d.Pos}
		seqs := maps.Clone(s.seqs)
		r, ok := s.m.Check(s.command(t, &inner))
		s.seqs = seqs
		if ok {
			return "may be proposed"
		}
		return "refused: " + refusal(r)
	case "together":
		var commands []command.Command
		for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
			cmd, args, err := datadriven.ParseLine(line)
			if err != nil {
				t.Fatal(err)
			}
			commands = append(commands, s.command(t, &datadriven.TestData{Cmd: cmd, CmdArgs: args, Pos: d.Pos}))
		}
		s.apply(t, commands...)
		return s.text()
	default:
		s.apply(t, s.command(t, d))
		return s.text()
	}
}

func (s *stage) text() string {
	if s.out.Len() == 0 {
		return "nothing"
	}
	return s.out.String()
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *stage) restore(t *testing.T) {
	before := snapshot(s.m)
	m, err := Restore(bytes.NewReader(before))
	if err != nil {
		t.Fatal(err)
	}
	s.m = m
}

func arg[T any](t *testing.T, d *datadriven.TestData, key string, value T) T {
	d.MaybeScanArgs(t, key, &value)
	return value
}

func span(t *testing.T, d *datadriven.TestData, key, value string) command.Millis {
	length, err := time.ParseDuration(arg(t, d, key, value))
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return command.Millis(length.Milliseconds())
}

func valuesOf(d *datadriven.TestData, key string) []string {
	if a, ok := d.Arg(key); ok {
		return a.Vals
	}
	return nil
}

// session finds a session by its name in the script, and opens it on first use.
func (s *stage) session(t *testing.T, d *datadriven.TestData) command.SessionID {
	name := arg(t, d, "session", "1")
	if _, ok := s.ids[name]; !ok {
		s.open(name, command.OpenSession{TTL: 10_000, ClientNumbered: true, Metadata: []command.Label{{Key: "host", Value: "host-" + name}}})
	}
	return s.ids[name]
}

func (s *stage) open(name string, c command.OpenSession) command.Result {
	out := s.m.Apply(s.m.Index()+1, testTerm, &command.Entry{Commands: []command.Command{c}})
	r := out.Results[0]
	if r.Code == command.OK {
		s.ids[name], s.names[r.Session] = r.Session, name
		s.byService[r.Session] = !c.ClientNumbered
	}
	return r
}

func (s *stage) command(t *testing.T, d *datadriven.TestData) command.Command {
	switch d.Cmd {
	case "open":
		s.opening = arg(t, d, "session", "1")
		return command.OpenSession{
			TTL: span(t, d, "ttl", "10s"), ClientNumbered: !d.HasArg("numbered-by-service"),
			Metadata: []command.Label{{Key: "host", Value: arg(t, d, "host", "host-"+s.opening)}},
		}
	case "acquire":
		return s.acquire(t, d)
	case "close":
		return command.CloseSession{Session: s.session(t, d)}
	case "expire":
		c := command.Expire{Term: s.term(d)}
		for _, name := range valuesOf(d, "session") {
			c.Sessions = append(c.Sessions, s.ids[name])
		}
		return c
	case "end-wait":
		return command.EndWait{Term: s.term(d), Claims: []command.ClaimID{s.claim(t, d)}}
	case "end-delay":
		return command.EndDelay{Term: s.term(d), Claims: []command.ClaimID{s.claim(t, d)}}
	case "floor":
		return command.SetTokenFloor{Floor: command.Token(arg(t, d, "token", uint64(0)))}
	case "limits":
		return s.limits(t, d)
	case "hash":
		return command.CheckHash{Index: s.m.Index(), Hash: s.m.Hash()}
	default:
		return s.ofClaim(t, d)
	}
}

func (s *stage) ofClaim(t *testing.T, d *datadriven.TestData) command.Command {
	id := s.claim(t, d)
	token := arg(t, d, "token", uint64(s.tokens[id]))
	by, reason := arg(t, d, "by", "ann"), arg(t, d, "reason", "maintenance")
	switch d.Cmd {
	case "release":
		return command.Release{Session: id.Session, Seq: id.Seq, Token: command.Token(token)}
	case "cancel":
		return command.Cancel{Session: id.Session, Seq: id.Seq, Floor: arg(t, d, "floor", uint64(0)), Seen: arg(t, d, "seen", uint64(0))}
	case "revoke":
		return command.Revoke{Claim: id, Token: command.Token(token), By: by, Reason: reason, Now: d.HasArg("now")}
	case "revoke-session":
		return command.Revoke{Claim: command.ClaimID{Session: id.Session}, Token: 0, By: by, Reason: reason, Now: d.HasArg("now")}
	default:
		d.Fatalf(t, "unknown command")
		return nil
	}
}

func (s *stage) term(d *datadriven.TestData) uint64 {
	if d.HasArg("stale") {
		return testTerm - 1
	}
	return testTerm
}

// claim returns the claim with seq, or the session's last one on the lock.
func (s *stage) claim(t *testing.T, d *datadriven.TestData) command.ClaimID {
	id := command.ClaimID{Session: s.session(t, d)}
	if d.HasArg("lock") {
		id = s.last[arg(t, d, "session", "1")+" "+valuesOf(d, "lock")[0]]
		id.Session = s.session(t, d)
	}
	id.Seq = arg(t, d, "seq", id.Seq)
	return id
}

func (s *stage) acquire(t *testing.T, d *datadriven.TestData) command.Acquire {
	a := command.Acquire{
		Session: s.session(t, d), Nonce: arg(t, d, "nonce", ""),
		Floor: arg(t, d, "floor", uint64(0)), Seen: arg(t, d, "seen", uint64(0)),
	}
	if !s.byService[a.Session] {
		a.Seq = arg(t, d, "seq", s.seqs[a.Session]+1)
		s.seqs[a.Session] = max(s.seqs[a.Session], a.Seq)
	}
	a.Spec = command.Spec{Names: valuesOf(d, "lock"), LockDelay: span(t, d, "delay", "0s")}
	if d.HasArg("shared") {
		a.Spec.Mode = command.Shared
	}
	if permits := arg(t, d, "permits", ""); permits != "" {
		k, n, _ := strings.Cut(permits, "/")
		a.Spec.Mode, a.Spec.Weight, a.Spec.Capacity = command.Permits, number(t, k), number(t, n)
	}
	if d.HasArg("try") || d.HasArg("wait") {
		a.Spec.HasWait, a.Spec.Wait = true, span(t, d, "wait", "0s")
	}
	if purpose := arg(t, d, "purpose", ""); purpose != "" {
		a.Spec.Metadata = []command.Label{{Key: "purpose", Value: purpose}}
	}
	return a
}

func number(t *testing.T, s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func (s *stage) limits(t *testing.T, d *datadriven.TestData) command.SetLimits {
	l := s.m.Limits()
	l.FeatureLevel = arg(t, d, "level", l.FeatureLevel)
	l.Sessions = arg(t, d, "sessions", l.Sessions)
	l.WaitersPerName = arg(t, d, "waiters", l.WaitersPerName)
	l.ClaimsPerSession = arg(t, d, "claims", l.ClaimsPerSession)
	l.RequestWindow = arg(t, d, "window", l.RequestWindow)
	l.RememberedClaims = arg(t, d, "remembered", l.RememberedClaims)
	l.HistoryBytes = arg(t, d, "history", l.HistoryBytes)
	l.AbnormalBytes = arg(t, d, "abnormal", l.AbnormalBytes)
	l.ClaimsTotal = arg(t, d, "total", l.ClaimsTotal)
	l.StateBytes = arg(t, d, "bytes", l.StateBytes)
	return command.SetLimits{Limits: l}
}

// apply applies the commands as one entry and shows the result.
func (s *stage) apply(t *testing.T, commands ...command.Command) {
	index := s.m.Index() + 1
	e := command.Entry{Header: command.Header{Wall: command.WallMillis(1000 * index)}, Commands: commands}
	out := s.m.Apply(index, testTerm, &e)
	for _, err := range []error{s.m.CheckTouched(), s.m.CheckInvariants()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.note(&e, &out)
	told := map[command.ClaimID]bool{}
	for i := range out.Events {
		s.event(&out.Events[i], &out)
		told[out.Events[i].Claim] = true
	}
	for i := range out.Results {
		s.result(commands[i], &out.Results[i], told)
	}
	for i := range out.Changes {
		if s.changes {
			s.change(&out.Changes[i])
		}
	}
	for _, timer := range out.Timers {
		if s.timers {
			s.timer(timer)
		}
	}
}

// note remembers tokens and the numbers of claims, so that scripts need not name them.
func (s *stage) note(e *command.Entry, out *command.Output) {
	for i, c := range e.Commands {
		if a, ok := c.(command.Acquire); ok {
			id := command.ClaimID{Session: a.Session, Seq: max(a.Seq, out.Results[i].Claim.Seq)}
			for _, n := range a.Spec.Names {
				s.last[s.names[a.Session]+" "+n] = id
			}
			s.locks[id] = strings.Join(a.Spec.Names, "+")
		}
	}
	for _, ev := range out.Events {
		if ev.Kind == command.EventGranted {
			s.tokens[ev.Claim] = ev.Token
		}
	}
}
