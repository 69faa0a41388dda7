package machine

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-dev/lockstep/server/command"
	"pgregory.net/rapid"
)

// opened returns a machine with a token floor and n sessions.
func opened(n int) (*Machine, []command.SessionID) {
	m := New()
	commands := []command.Command{command.SetTokenFloor{Floor: 1}}
	for range n {
		commands = append(commands, command.OpenSession{TTL: 10_000, ClientNumbered: true})
	}
	var ids []command.SessionID
	for _, r := range m.Apply(1, 1, &command.Entry{Commands: commands}).Results[1:] {
		ids = append(ids, r.Session)
	}
	return m, ids
}

func apply(m *Machine, commands ...command.Command) command.Output {
	return m.Apply(m.Index()+1, 1, &command.Entry{Commands: commands})
}

func exclusive(id command.SessionID, seq uint64, names ...string) command.Acquire {
	return command.Acquire{Session: id, Seq: seq, Floor: seq, Spec: command.Spec{Names: names}}
}

func TestApplyPanicsWhereGoingOnWouldForkTheReplicas(t *testing.T) {
	m, _ := opened(1)
	mustPanic(t, "unknown command", func() { apply(m, nil) })
	m, _ = opened(1)
	mustPanic(t, "applied after", func() { m.Apply(1, 1, &command.Entry{}) })
	m, _ = opened(1)
	newer := command.DefaultLimits()
	newer.FeatureLevel++
	mustPanic(t, "feature level", func() { apply(m, command.SetLimits{Limits: newer}) })
	m, _ = opened(1)
	mustPanic(t, "diverged", func() { apply(m, command.CheckHash{Index: m.Index(), Hash: m.Hash() + 1}) })
}

func TestAHashThatIsRightOrNotKnownPasses(t *testing.T) {
	m, _ := opened(1)
	index, hash := m.Index(), m.Hash()
	right, none, unknown := command.CheckHash{Index: index, Hash: hash}, command.CheckHash{Hash: 5}, command.CheckHash{Index: index + 7, Hash: 5}
	if r := apply(m, right, none, unknown); r.Results[0].Code != command.OK {
		t.Fatal(r)
	}
	for range recentHashes {
		apply(m)
	}
	apply(m, command.CheckHash{Index: index, Hash: hash + 1}) // too old to be compared
}

func TestTheHashTellsAnyTwoOutputsApart(t *testing.T) {
	hashes := map[uint64]string{}
	for _, c := range []command.Command{
		nil,
		command.SetTokenFloor{Floor: 9},
		command.OpenSession{TTL: 5},
		command.OpenSession{TTL: 6},
		command.Acquire{Session: command.SessionID{1}},
		exclusive(command.SessionID{0, 0, 0, 0, 0, 1, 0, 1}, 1, "a"),
		exclusive(command.SessionID{0, 0, 0, 0, 0, 1, 0, 1}, 1, "b"),
		exclusive(command.SessionID{0, 0, 0, 0, 0, 1, 0, 1}, 2, "a"),
		command.CloseSession{Session: command.SessionID{0, 0, 0, 0, 0, 1, 0, 1}},
		command.Expire{Term: 1, Sessions: []command.SessionID{{0, 0, 0, 0, 0, 1, 0, 1}}},
	} {
		m, _ := opened(2)
		if c != nil {
			apply(m, c)
		}
		if other, ok := hashes[m.Hash()]; ok {
			t.Errorf("%+v gives the same hash as %s", c, other)
		}
		hashes[m.Hash()] = fmt.Sprintf("%+v", c)
	}
}

func TestNamesTakenAndFreedLeaveNothingBehind(t *testing.T) {
	m, ids := opened(50)
	limits := command.DefaultLimits()
	limits.HistoryBytes, limits.AbnormalBytes = 64<<10, 64<<10
	apply(m, command.SetLimits{Limits: limits})
	const names = 100_000
	round := func(seq uint64) {
		for n := 0; n < names; n += 2000 {
			var take, free []command.Command
			for i := range 2000 {
				seq := seq + uint64(i/len(ids))
				a := exclusive(ids[i%len(ids)], seq, fmt.Sprintf("burst/%d", n+i))
				a.Seen = math.MaxUint64
				take = append(take, a)
			}
			for i, r := range apply(m, take...).Results {
				free = append(free, command.Release{Session: ids[i%len(ids)], Seq: r.Claim.Seq, Token: r.Claim.Token})
			}
			apply(m, free...)
		}
	}
	round(1)
	heap, size := measure(m)
	// All at once this time: the tables have to shrink again. With two sessions holding 2,000 names
	// each, the claims stay within the limit.
	holdAll(t, m, names)
	round(1000)
	heap2, size2 := measure(m)
	if c := m.Counts(); c.Names != 0 || m.order.Len() != 0 {
		t.Fatalf("%d names are left", c.Names)
	}
	if size2 > size+size/10 {
		t.Errorf("the snapshot grew from %d to %d bytes", size, size2)
	}
	if heap2 > heap+heap/10 {
		t.Errorf("the heap grew from %d to %d bytes", heap, heap2)
	}
}

func holdAll(t *testing.T, m *Machine, names int) {
	const each = 2000
	var ids []command.SessionID
	for range names / each {
		ids = append(ids, apply(m, command.OpenSession{TTL: 1, ClientNumbered: true}).Results[0].Session)
	}
	for i, id := range ids {
		var take []command.Command
		for seq := range uint64(each) {
			take = append(take, command.Acquire{Session: id, Seq: seq + 1, Floor: seq + 1, Spec: command.Spec{Names: []string{fmt.Sprintf("held/%d/%d", i, seq)}}})
		}
		apply(m, take...)
	}
	if got := m.Counts().Holders; got != names {
		t.Fatalf("%d names are held, want %d", got, names)
	}
	for _, id := range ids {
		apply(m, command.CloseSession{Session: id})
	}
}

func measure(m *Machine) (heap, size int) {
	size = len(snapshot(m))
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	runtime.KeepAlive(m)
	return int(stats.HeapAlloc), size
}

func TestOnlyTheLastEndedSessionsAreRemembered(t *testing.T) {
	m, ids := opened(2)
	apply(m, command.Revoke{Claim: command.ClaimID{Session: ids[0]}, By: "ann", Reason: "left"})
	apply(m, command.Expire{Term: 1, Sessions: ids[1:]})
	if code, by, reason := m.SessionEnding(ids[0]); code != command.SessionRevoked || by != "ann" || reason != "left" {
		t.Fatalf("the end of the revoked session is %v by %q, %q", code, by, reason)
	}
	churn := func(sessions int) {
		for n := 0; n < sessions; n += 1000 {
			var open, end []command.Command
			for range 1000 {
				open = append(open, command.OpenSession{TTL: 1, Random: [8]byte{7: byte(len(open))}})
			}
			for _, r := range apply(m, open...).Results {
				end = append(end, command.CloseSession{Session: r.Session})
			}
			apply(m, end...)
		}
	}
	churn(65_000)
	if m.SessionEnd(ids[0]) != command.SessionRevoked || m.SessionEnd(ids[1]) != command.SessionExpired {
		t.Fatal("the ends are forgotten too early")
	}
	m = restored(t, m)
	churn(1000)
	if m.SessionEnd(ids[0]) != command.SessionUnknown || m.SessionEnd(ids[1]) != command.SessionUnknown {
		t.Fatal("the ends are remembered for ever")
	}
	if got := m.lately.len(); got != rememberedSessions {
		t.Fatalf("%d ended sessions are remembered, want %d", got, rememberedSessions)
	}
}

func TestAClosedSessionIsUnknownButCanBeClosedAgain(t *testing.T) {
	m, ids := opened(1)
	out := apply(m, command.CloseSession{Session: ids[0]}, command.CloseSession{Session: ids[0]}, command.CloseSession{Session: command.SessionID{9}})
	if got := codes(out); !slices.Equal(got, []command.Code{command.OK, command.OK, command.SessionUnknown}) {
		t.Fatalf("codes are %v", got)
	}
	if got := m.SessionEnd(ids[0]); got != command.SessionUnknown {
		t.Fatalf("its end is %v", got)
	}
}

func codes(out command.Output) []command.Code {
	var list []command.Code
	for _, r := range out.Results {
		list = append(list, r.Code)
	}
	return list
}

func TestMalformedCommandsAreRefused(t *testing.T) {
	m, ids := opened(1)
	id := ids[0]
	permits := func(k, n uint32) command.Spec {
		return command.Spec{Names: []string{"a"}, Mode: command.Permits, Weight: k, Capacity: n}
	}
	seventeen := strings.Split("abcdefghijklmnopq", "")
	for name, c := range map[string]command.Command{
		"no name":                     command.Acquire{Session: id, Seq: 1},
		"an empty name":               exclusive(id, 1, ""),
		"a name twice":                exclusive(id, 1, "a", "b", "a"),
		"seventeen names":             exclusive(id, 1, seventeen...),
		"no number":                   exclusive(id, 0, "a"),
		"shared on two names":         command.Acquire{Session: id, Seq: 1, Spec: command.Spec{Names: []string{"a", "b"}, Mode: command.Shared}},
		"an unknown mode":             command.Acquire{Session: id, Seq: 1, Spec: command.Spec{Names: []string{"a"}, Mode: 3}},
		"no permit":                   command.Acquire{Session: id, Seq: 1, Spec: permits(0, 3)},
		"more permits than there are": command.Acquire{Session: id, Seq: 1, Spec: permits(4, 3)},
		"too many permits":            command.Acquire{Session: id, Seq: 1, Spec: permits(1, MaxPermits+1)},
		"an exclusive claim of 2":     command.Acquire{Session: id, Seq: 1, Spec: command.Spec{Names: []string{"a"}, Capacity: 2}},
		"a cancel of nothing":         command.Cancel{Session: id},
		"a session without a lease":   command.OpenSession{},
	} {
		if r := apply(m, c).Results[0]; r.Code != command.Malformed {
			t.Errorf("%s: %+v", name, r)
		}
		if r, ok := m.Check(c); ok || r.Code != command.Malformed {
			t.Errorf("%s may be proposed: %+v", name, r)
		}
	}
	if c := m.Counts(); c.Names != 0 || c.Sessions != 1 {
		t.Fatalf("something is left: %+v", c)
	}
}

// TestPositionsAreThoseOfTheQueue compares the queue's numbering with a plain slice.
func TestPositionsAreThoseOfTheQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var want []*link
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			for range rapid.IntRange(0, 80).Draw(t, "arrivals") {
				k := new(link)
				q.push(k)
				want = append(want, k)
			}
			for range rapid.IntRange(0, 80).Draw(t, "departures") {
				if len(want) == 0 {
					break
				}
				i := rapid.IntRange(0, len(want)-1).Draw(t, "who")
				q.remove(want[i])
				want = slices.Delete(want, i, i+1)
			}
			at := 0
			for k := q.head; k != nil; k = k.next {
				if k != want[at] || q.position(k) != uint32(at+1) {
					t.Fatalf("the waiter at %d of %d is given as %d", at+1, len(want), q.position(k))
				}
				at++
			}
			if at != len(want) || len(q.holes) > max(minHoles, 2*q.n)+1 {
				t.Fatalf("%d waiters and %d holes, want %d waiters", at, len(q.holes), len(want))
			}
		}
	})
}

func TestLabelsOfTheClaimWin(t *testing.T) {
	session := []command.Label{{Key: "a", Value: "1"}, {Key: "c", Value: "1"}, {Key: "e", Value: "1"}}
	claim := []command.Label{{Key: "b", Value: "2"}, {Key: "c", Value: "2"}, {Key: "f", Value: "2"}}
	want := []command.Label{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}, {Key: "c", Value: "2"}, {Key: "e", Value: "1"}, {Key: "f", Value: "2"}}
	if diff := cmp.Diff(want, mergeLabels(session, claim)); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(mergeLabels(session, nil), session) || !slices.Equal(mergeLabels(nil, claim), claim) {
		t.Error("with an empty list the other one is the result")
	}
}

func TestARememberedNonceKeepsNoCommandAlive(t *testing.T) {
	m, _ := opened(0)
	id := apply(m, command.OpenSession{TTL: 1000}).Results[0].Session
	a := command.Acquire{Session: id, Nonce: "n", Spec: command.Spec{Names: []string{"job"}}}
	whole := "n" + strings.Repeat("x", 1<<10) // as DecodeEntry makes it
	a.Nonce = whole[:1]
	r := apply(m, a).Results[0]
	apply(m, command.Release{Session: id, Seq: r.Claim.Seq, Token: r.Claim.Token})
	o := m.session(id).outcome(r.Claim.Seq)
	if o.nonce != "n" || unsafe.StringData(o.nonce) == unsafe.StringData(whole) {
		t.Errorf("the nonce %q of a claim that is over shares the memory of its command", o.nonce)
	}
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), want) {
			t.Errorf("panic is %v, want one with %q", r, want)
		}
	}()
	f()
}
