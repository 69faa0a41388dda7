package zklock

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

const ms = time.Millisecond

// With a timeout of 12 s and a tick of 2 s, reports take 1.3 s and beats come every 500 ms.
func TestARenewalCountsFromWhatTheLeaderHasCertainlyHeard(t *testing.T) {
	var e evidence
	e.connected(1000*ms, newTiming(12*time.Second, 2*time.Second))
	c := e.present()
	for _, step := range []struct {
		what  string
		beats []beat
		sent  time.Duration
		want  time.Duration
	}{
		{"at first the opening counts", nil, 1100 * ms, 1000 * ms},
		{"a beat may not have been reported yet", []beat{{1500 * ms, 1510 * ms}}, 2809 * ms, 1000 * ms},
		{"after the time of a report it counts from its sending", nil, 2810 * ms, 1500 * ms},
		{"the newest of those that are old enough counts", []beat{{2000 * ms, 2010 * ms}, {2500 * ms, 2510 * ms}, {4000 * ms, 4010 * ms}}, 4000 * ms, 2500 * ms},
		{"an answer that came late proves a report later", []beat{{5000 * ms, 6000 * ms}}, 7299 * ms, 4000 * ms},
		{"a renewal that was sent earlier takes nothing back", nil, 3000 * ms, 4000 * ms},
	} {
		for _, b := range step.beats {
			e.beat(c, b)
		}
		if got := e.wrote(c, step.sent); got != step.want {
			t.Errorf("%s: counts from %v, want %v", step.what, got, step.want)
		}
	}
}

func TestEvidenceOfOneConnectionSaysNothingOfAnother(t *testing.T) {
	var e evidence
	e.connected(0, newTiming(12*time.Second, 0))
	old := e.present()
	e.beat(old, beat{time.Second, time.Second})
	e.connected(2*time.Second, newTiming(12*time.Second, 0))
	if got := e.wrote(e.present(), 20*time.Second); got != 2*time.Second {
		t.Errorf("counts from %v, want from the new connection's request", got)
	}
	e.beat(old, beat{3 * time.Second, 3 * time.Second})
	if got := e.wrote(old, 30*time.Second); got != 2*time.Second {
		t.Errorf("counts from %v after an answer of the old connection", got)
	}
	if got := e.wrote(e.present(), 30*time.Second); got != 2*time.Second {
		t.Errorf("counts from %v, the beat was one of the old connection", got)
	}
}

func TestEvidenceIsBounded(t *testing.T) {
	var e evidence
	e.connected(0, newTiming(12*time.Second, 0))
	for i := range 100_000 {
		e.beat(e.present(), beat{time.Duration(i) * ms, time.Duration(i) * ms})
	}
	if len(e.beats) > maxBeats {
		t.Errorf("%d beats, want at most %d", len(e.beats), maxBeats)
	}
	if got := e.wrote(e.present(), 100*time.Second); 100*time.Second-got > 4*time.Second {
		t.Errorf("the evidence is %v old", 100*time.Second-got)
	}
}

func TestWhoWaitsForWhom(t *testing.T) {
	id := func(c string) string { return strings.Repeat(c, idBytes) }
	q := parseQueue([]string{
		"s-" + id("d") + "-0000000007", "junk", "x-" + id("c") + "-0000000003", "s-" + id("a") + "-0000000001",
		"s-" + id("b") + "-0000000002", "s-" + id("e") + "-0000000012", "x-short-0000000001", "y-" + id("a") + "-0000000001", "x-" + id("f") + "-",
	})
	var order string
	var blockers []int
	for i, n := range q {
		order += n.id[:1]
		blockers = append(blockers, q.blocker(i))
	}
	if order != "abcde" || !slices.Equal(blockers, []int{-1, -1, 1, 2, 2}) || q.holders() != 2 {
		t.Errorf("order %s, blockers %v, %d holders", order, blockers, q.holders())
	}
	if q.find(id("c")) != 2 || q.find(id("z")) != -1 {
		t.Errorf("found c at %d and z at %d", q.find(id("c")), q.find(id("z")))
	}
	if n, ok := parseNode("x-" + id("a") + "--2147483648"); !ok || checkNumber(n) == nil {
		t.Errorf("a number that ran over was taken: %+v, %v", n, ok)
	}
}

func TestTokensAreTransactionsBelow2To53(t *testing.T) {
	for czxid, isGood := range map[int64]bool{1: true, 5 << 32: true, 1<<53 - 1: true, 1 << 53: false, 0: false, -1: false} {
		if token, err := tokenOf(czxid); (err == nil) != isGood || isGood && int64(token) != czxid {
			t.Errorf("token of %d: %d, %v", czxid, token, err)
		}
	}
}

func TestNamesBecomeOneSegmentEach(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a/b", "a%2Fb", "a%b", "a b", "a+b", "жук", "a/..b", strings.Repeat("é", 256)} {
		dir := dirOf("/r", name)
		if strings.Count(dir, "/") != 3 || seen[dir] != "" {
			t.Errorf("%q became %q, as %q did", name, dir, seen[dir])
		}
		seen[dir] = name
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	good := Config{Servers: []string{"zk1:2181", "zk2"}, TTL: 5 * time.Second, Root: "/a/b", User: "u", Password: "p:q", TickTime: time.Second}
	l, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for what, spoil := range map[string]func(*Config){
		"no servers":        func(c *Config) { c.Servers = nil },
		"many servers":      func(c *Config) { c.Servers = make([]string, maxServers+1) },
		"no host":           func(c *Config) { c.Servers = []string{":2181"} },
		"port zero":         func(c *Config) { c.Servers = []string{"zk:0"} },
		"port by name":      func(c *Config) { c.Servers = []string{"zk:zookeeper"} },
		"short TTL":         func(c *Config) { c.TTL = time.Millisecond },
		"long TTL":          func(c *Config) { c.TTL = time.Hour },
		"relative root":     func(c *Config) { c.Root = "a" },
		"the root itself":   func(c *Config) { c.Root = "/" },
		"root with a slash": func(c *Config) { c.Root = "/a/" },
		"root of ZooKeeper": func(c *Config) { c.Root = "/zookeeper/a" },
		"long root":         func(c *Config) { c.Root = "/" + strings.Repeat("a", maxRootBytes) },
		"password alone":    func(c *Config) { c.User = "" },
		"colon in user":     func(c *Config) { c.User = "a:b" },
		"negative tick":     func(c *Config) { c.TickTime = -1 },
		"no patience":       func(c *Config) { c.UnavailableAfter = -1 },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := New(cfg); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}

func TestErrorsHaveTheirMeaning(t *testing.T) {
	for _, c := range []struct {
		err, want error
		isBroken  bool
	}{
		{zk.ErrSessionExpired, lockstep.ErrLost, false},
		{zk.ErrNoAuth, lockstep.ErrInvalid, false},
		{errors.New("unknown error: -125"), lockstep.ErrQuota, false},
		{zk.ErrNoNode, zk.ErrNoNode, false},
		{zk.ErrConnectionClosed, zk.ErrConnectionClosed, true},
		{zk.ErrSessionMoved, zk.ErrSessionMoved, true},
		{io.EOF, io.EOF, true},
	} {
		if got := explain(c.err); !errors.Is(got, c.want) || isBroken(got) != c.isBroken {
			t.Errorf("%v became %v, broken %v", c.err, got, isBroken(got))
		}
	}
}

// answer is a server's response to the request for a session.
func answer(id int64, timeout time.Duration) []byte {
	p := binary.BigEndian.AppendUint32(nil, 4+4+8+4+16+1)
	p = binary.BigEndian.AppendUint32(p, 0)
	p = binary.BigEndian.AppendUint32(p, uint32(timeout.Milliseconds()))
	p = binary.BigEndian.AppendUint64(p, uint64(id))
	return append(p, make([]byte, 4+16+1)...)
}

// ask makes a wire request a session, and answers it in pieces.
func ask(t *testing.T, w *wire, text []byte) error {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	link, err := w.adopt(near)
	if err != nil {
		return err
	}
	go func() {
		io.ReadFull(far, make([]byte, 3))
		for piece := range slices.Chunk(text, 7) {
			if _, err := far.Write(piece); err != nil {
				return // the wire has refused
			}
		}
	}()
	if _, err := link.Write([]byte("ask")); err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadFull(link, make([]byte, len(text)))
	return err
}

func TestTheWireSeesWhatTheLibraryHides(t *testing.T) {
	w := newWire(Config{Servers: []string{"a:1"}, TTL: 3 * time.Second}, lease.SystemClock())
	before := w.clock.Now()
	if err := ask(t, w, answer(7, 4*time.Second)); err != nil {
		t.Fatal(err)
	}
	if o := <-w.opened; o.id != 7 || o.timeout != 4*time.Second || o.sent < before {
		t.Errorf("opened %+v", o)
	}
	for what, text := range map[string][]byte{
		"another session":     answer(8, 4*time.Second),
		"a shorter timeout":   answer(7, 3*time.Second),
		"nothing of interest": answer(-9, 9*time.Second),
	} {
		if err := ask(t, w, text); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	if err := ask(t, w, answer(7, 4*time.Second)); err != nil || len(w.resumed) != 1 || w.evidence.present() != 2 {
		t.Errorf("resumed: %v, %d, connection %d", err, len(w.resumed), w.evidence.present())
	}
	if err := ask(t, w, answer(0, 4*time.Second)); err != nil { // the library must see this one
		t.Error(err)
	}
	select {
	case <-w.expired:
	default:
		t.Error("an expiry was not seen")
	}
	if err := ask(t, w, answer(9, 4*time.Second)); err == nil {
		t.Error("another session was opened in place of the one that expired")
	}
	w.close()
}
