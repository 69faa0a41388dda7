package machine

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// opened returns a machine with a token floor and n sessions.
func opened(n int) (*Machine, []SessionID) {
	m := New()
	commands := []Command{SetTokenFloor{1}}
	for range n {
		commands = append(commands, OpenSession{TTL: 10_000, ClientNumbered: true})
	}
	var ids []SessionID
	for _, r := range m.Apply(1, 1, &Entry{Commands: commands}).Results[1:] {
		ids = append(ids, r.Session)
	}
	return m, ids
}

func apply(m *Machine, commands ...Command) Output {
	return m.Apply(m.Index()+1, 1, &Entry{Commands: commands})
}

func exclusive(id SessionID, seq uint64, names ...string) Acquire {
	return Acquire{Session: id, Seq: seq, Floor: seq, Spec: Spec{Names: names}}
}

func TestApplyPanicsWhereGoingOnWouldForkTheReplicas(t *testing.T) {
	m, _ := opened(1)
	mustPanic(t, "unknown command", func() { apply(m, nil) })
	m, _ = opened(1)
	mustPanic(t, "applied after", func() { m.Apply(1, 1, &Entry{}) })
	m, _ = opened(1)
	newer := DefaultLimits()
	newer.FeatureLevel++
	mustPanic(t, "feature level", func() { apply(m, SetLimits{newer}) })
	m, _ = opened(1)
	mustPanic(t, "diverged", func() { apply(m, CheckHash{m.Index(), m.Hash() + 1}) })
}

func TestAHashThatIsRightOrNotKnownPasses(t *testing.T) {
	m, _ := opened(1)
	index, hash := m.Index(), m.Hash()
	if r := apply(m, CheckHash{index, hash}, CheckHash{0, 5}, CheckHash{index + 7, 5}); r.Results[0].Code != OK {
		t.Fatal(r)
	}
	for range recentHashes {
		apply(m)
	}
	apply(m, CheckHash{index, hash + 1}) // too old to be compared
}

func TestTheHashTellsAnyTwoOutputsApart(t *testing.T) {
	hashes := map[uint64]string{}
	for _, c := range []Command{
		nil,
		SetTokenFloor{9},
		OpenSession{TTL: 5},
		OpenSession{TTL: 6},
		Acquire{Session: SessionID{1}},
		exclusive(SessionID{0, 0, 0, 0, 0, 1, 0, 1}, 1, "a"),
		exclusive(SessionID{0, 0, 0, 0, 0, 1, 0, 1}, 1, "b"),
		exclusive(SessionID{0, 0, 0, 0, 0, 1, 0, 1}, 2, "a"),
		CloseSession{SessionID{0, 0, 0, 0, 0, 1, 0, 1}},
		Expire{1, []SessionID{{0, 0, 0, 0, 0, 1, 0, 1}}},
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
	limits := DefaultLimits()
	limits.HistoryBytes, limits.AbnormalBytes = 64<<10, 64<<10
	apply(m, SetLimits{limits})
	const names = 100_000
	round := func(seq uint64) {
		for n := 0; n < names; n += 2000 {
			var take, free []Command
			for i := range 2000 {
				seq := seq + uint64(i/len(ids))
				a := exclusive(ids[i%len(ids)], seq, fmt.Sprintf("burst/%d", n+i))
				a.Seen = math.MaxUint64
				take = append(take, a)
			}
			for i, r := range apply(m, take...).Results {
				free = append(free, Release{ids[i%len(ids)], r.Claim.Seq, r.Claim.Token})
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
	var ids []SessionID
	for range names / each {
		ids = append(ids, apply(m, OpenSession{TTL: 1, ClientNumbered: true}).Results[0].Session)
	}
	for i, id := range ids {
		var take []Command
		for seq := range uint64(each) {
			take = append(take, Acquire{Session: id, Seq: seq + 1, Floor: seq + 1, Spec: Spec{Names: []string{fmt.Sprintf("held/%d/%d", i, seq)}}})
		}
		apply(m, take...)
	}
	if got := m.Counts().Holders; got != names {
		t.Fatalf("%d names are held, want %d", got, names)
	}
	for _, id := range ids {
		apply(m, CloseSession{id})
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
	apply(m, Revoke{Claim: ClaimID{Session: ids[0]}, By: "ann", Reason: "left"})
	apply(m, Expire{1, ids[1:]})
	if code, by, reason := m.SessionEnding(ids[0]); code != SessionRevoked || by != "ann" || reason != "left" {
		t.Fatalf("the end of the revoked session is %v by %q, %q", code, by, reason)
	}
	churn := func(sessions int) {
		for n := 0; n < sessions; n += 1000 {
			var open, end []Command
			for range 1000 {
				open = append(open, OpenSession{TTL: 1, Random: [8]byte{7: byte(len(open))}})
			}
			for _, r := range apply(m, open...).Results {
				end = append(end, CloseSession{r.Session})
			}
			apply(m, end...)
		}
	}
	churn(65_000)
	if m.SessionEnd(ids[0]) != SessionRevoked || m.SessionEnd(ids[1]) != SessionExpired {
		t.Fatal("the ends are forgotten too early")
	}
	m = restored(t, m)
	churn(1000)
	if m.SessionEnd(ids[0]) != SessionUnknown || m.SessionEnd(ids[1]) != SessionUnknown {
		t.Fatal("the ends are remembered for ever")
	}
	if got := m.lately.len(); got != rememberedSessions {
		t.Fatalf("%d ended sessions are remembered, want %d", got, rememberedSessions)
	}
}

func TestAClosedSessionIsUnknownButCanBeClosedAgain(t *testing.T) {
	m, ids := opened(1)
	out := apply(m, CloseSession{ids[0]}, CloseSession{ids[0]}, CloseSession{SessionID{9}})
	if got := codes(out); !slices.Equal(got, []Code{OK, OK, SessionUnknown}) {
		t.Fatalf("codes are %v", got)
	}
	if got := m.SessionEnd(ids[0]); got != SessionUnknown {
		t.Fatalf("its end is %v", got)
	}
}

func codes(out Output) []Code {
	var list []Code
	for _, r := range out.Results {
		list = append(list, r.Code)
	}
	return list
}

func TestMalformedCommandsAreRefused(t *testing.T) {
	m, ids := opened(1)
	id := ids[0]
	permits := func(k, n uint32) Spec { return Spec{Names: []string{"a"}, Mode: Permits, Weight: k, Capacity: n} }
	seventeen := strings.Split("abcdefghijklmnopq", "")
	for name, c := range map[string]Command{
		"no name":                     Acquire{Session: id, Seq: 1},
		"an empty name":               exclusive(id, 1, ""),
		"a name twice":                exclusive(id, 1, "a", "b", "a"),
		"seventeen names":             exclusive(id, 1, seventeen...),
		"no number":                   exclusive(id, 0, "a"),
		"shared on two names":         Acquire{Session: id, Seq: 1, Spec: Spec{Names: []string{"a", "b"}, Mode: Shared}},
		"an unknown mode":             Acquire{Session: id, Seq: 1, Spec: Spec{Names: []string{"a"}, Mode: 3}},
		"no permit":                   Acquire{Session: id, Seq: 1, Spec: permits(0, 3)},
		"more permits than there are": Acquire{Session: id, Seq: 1, Spec: permits(4, 3)},
		"too many permits":            Acquire{Session: id, Seq: 1, Spec: permits(1, maxPermits+1)},
		"an exclusive claim of 2":     Acquire{Session: id, Seq: 1, Spec: Spec{Names: []string{"a"}, Capacity: 2}},
		"a cancel of nothing":         Cancel{Session: id},
		"a session without a lease":   OpenSession{},
	} {
		if r := apply(m, c).Results[0]; r.Code != Malformed {
			t.Errorf("%s: %+v", name, r)
		}
		if r, ok := m.Check(c); ok || r.Code != Malformed {
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
	session := []Label{{"a", "1"}, {"c", "1"}, {"e", "1"}}
	claim := []Label{{"b", "2"}, {"c", "2"}, {"f", "2"}}
	want := []Label{{"a", "1"}, {"b", "2"}, {"c", "2"}, {"e", "1"}, {"f", "2"}}
	if diff := cmp.Diff(want, mergeLabels(session, claim)); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(mergeLabels(session, nil), session) || !slices.Equal(mergeLabels(nil, claim), claim) {
		t.Error("with an empty list the other one is the result")
	}
}

func TestASessionIDIsReadFromItsText(t *testing.T) {
	id := SessionID{0: 0xab, 15: 1}
	if got, err := ParseSessionID(id.String()); err != nil || got != id {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "ab", strings.Repeat("g", 32), strings.Repeat("0", 33), strings.Repeat("0", 1<<20)} {
		if _, err := ParseSessionID(bad); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.40q gives %v", bad, err)
		}
	}
}

func TestNamesOfConstants(t *testing.T) {
	got := fmt.Sprint(Void, WaitEnded, Permits, EventCancelled, DelayOver, Code(200), State(0), TimerKind(99), Lost)
	if want := "void wait ended permits cancelled delay over code 200 state 0 timer 99 lost"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
