package machine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-dev/lockstep/server/command"
)

// smallHistory returns a machine with the smallest history, and a session.
func smallHistory() (*Machine, command.SessionID) {
	m, ids := opened(1)
	l := command.DefaultLimits()
	l.HistoryBytes, l.AbnormalBytes = 64<<10, 64<<10
	apply(m, command.SetLimits{Limits: l})
	return m, ids[0]
}

func churn(m *Machine, id command.SessionID, from, rounds uint64, name string) {
	for seq := from; seq < from+rounds; seq++ {
		a := exclusive(id, seq, name)
		a.Seen = seq // more than there are changes
		token := apply(m, a).Results[0].Claim.Token
		apply(m, command.Release{Session: id, Seq: seq, Token: token})
	}
}

func TestTheHistoryStaysWithinItsBytes(t *testing.T) {
	m, id := smallHistory()
	for seq := uint64(1); seq < 5000; seq += 100 {
		churn(m, id, seq, 100, strings.Repeat("n", int(seq%500)+1))
		if m.history.size > m.history.limit {
			t.Fatalf("%d bytes of history, the limit is %d", m.history.size, m.history.limit)
		}
	}
	if m.history.size < m.history.limit*7/8 {
		t.Errorf("%d bytes of history, although %d are allowed", m.history.size, m.history.limit)
	}
	if len(m.history.segments) > 20 {
		t.Errorf("%d segments", len(m.history.segments))
	}
	if got := restored(t, m).history.dropped; got != m.history.dropped {
		t.Errorf("dropped up to %d, restored %d", m.history.dropped, got)
	}
}

func TestARevocationOutlivesTheRestOfTheHistory(t *testing.T) {
	m, id := smallHistory()
	apply(m, exclusive(id, 1, "a"))
	apply(m, command.Revoke{Claim: command.ClaimID{Session: id, Seq: 1}, Token: 1, By: "ann", Reason: "maintenance", Now: true})
	churn(m, id, 2, 5000, "b")
	churn(m, id, 5002, 1, "a")
	events, complete := m.History("a", 10)
	var got []string
	for _, e := range events {
		got = append(got, e.Kind.String())
	}
	if diff := cmp.Diff([]string{"revoked", "granted", "released"}, got); diff != "" || complete {
		t.Errorf("complete %v, %s", complete, diff)
	}
	if events[0].By != "ann" || events[0].Number != 2 {
		t.Errorf("the revocation is %+v", events[0])
	}
}

func TestASmallerLimitDropsTheOldestHistory(t *testing.T) {
	m, ids := opened(1)
	churn(m, ids[0], 1, 10_000, "a")
	before, complete := m.History("a", 20_000)
	if len(before) != 20_000 || !complete {
		t.Fatalf("%d events, complete %v", len(before), complete)
	}
	l := command.DefaultLimits()
	l.HistoryBytes = 512 << 10
	apply(m, command.SetLimits{Limits: l})
	after, complete := m.History("a", 20_000)
	if m.history.size > 512<<10 || len(after) < 3000 || complete {
		t.Fatalf("%d bytes, complete %v", m.history.size, complete)
	}
	if diff := cmp.Diff(before[len(before)-len(after):], after); diff != "" {
		t.Error(diff)
	}
}

func TestLongAndShortRecordsComeBackAsTheyWere(t *testing.T) {
	m, ids := opened(1)
	for i, size := range []int{1, 20, 100, 127, 128, 500, 20_000} {
		a := exclusive(ids[0], uint64(i+1), strings.Repeat("n", size))
		a.Spec.Metadata = []command.Label{{Key: "k", Value: strings.Repeat("v", size)}}
		want := apply(m, a).Events
		got, complete := m.History(a.Spec.Names[0], 10)
		if diff := cmp.Diff(want, got); diff != "" || !complete {
			t.Errorf("a name of %d bytes: complete %v, %s", size, complete, diff)
		}
	}
}

func TestACaptureKeepsTheHistoryThatIsDroppedMeanwhile(t *testing.T) {
	m, id := smallHistory()
	churn(m, id, 1, 1000, "a")
	want := snapshot(m)
	c := m.StartCapture()
	churn(m, id, 1001, 1000, "a")
	var got bytes.Buffer
	for last := false; !last; {
		var chunk []byte
		chunk, last = c.Next()
		got.Write(chunk)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the snapshot is not that of the start")
	}
}

func TestTheEventsBehindANumberAreRead(t *testing.T) {
	m, id := smallHistory()
	churn(m, id, 1, 5000, "b")
	last := m.Counts().Events
	oldest := m.Past().After(0, 1)[0].Number
	if oldest != m.history.dropped+1 || oldest == 1 {
		t.Errorf("the oldest event is %d, dropped are %d", oldest, m.history.dropped)
	}
	seen := oldest - 1
	for seen < last {
		events := m.Past().After(seen, 100)
		if len(events) == 0 || len(events) > 100 {
			t.Fatalf("%d events behind %d of %d", len(events), seen, last)
		}
		for _, e := range events {
			if e.Number != seen+1 {
				t.Fatalf("event %d behind %d", e.Number, seen)
			}
			seen = e.Number
		}
	}
	if got := m.Past().After(last, 100); len(got) != 0 {
		t.Errorf("%d events behind the last", len(got))
	}
}

func TestTheOldestHolderIsKnown(t *testing.T) {
	m, id := smallHistory()
	if got := m.Counts().Oldest; got != 0 {
		t.Errorf("oldest %d without a holder", got)
	}
	var walls []command.WallMillis
	for seq, name := range []string{"a", "b", "c"} {
		apply(m, exclusive(id, uint64(seq+1), name))
		walls = append(walls, m.wall)
	}
	check := func(want command.WallMillis) {
		t.Helper()
		for _, m := range []*Machine{m, restored(t, m)} {
			if got := m.Counts().Oldest; got != want {
				t.Errorf("oldest %d, want %d", got, want)
			}
		}
	}
	check(walls[0])
	apply(m, command.Release{Session: id, Seq: 2, Token: m.Lock("b", 100, 0).Holders[0].Token})
	check(walls[0])
	apply(m, command.Release{Session: id, Seq: 1, Token: m.Lock("a", 100, 0).Holders[0].Token})
	check(walls[2])
	apply(m, command.Release{Session: id, Seq: 3, Token: m.Lock("c", 100, 0).Holders[0].Token})
	check(0)
}

// spread returns a machine whose whole history is of short names that were granted and released
// once.
func spread(names int) *Machine {
	m, ids := opened(1)
	for i := range names {
		churn(m, ids[0], uint64(i+1), 1, fmt.Sprintf("n/%06d", i))
	}
	return m
}

func TestASearchReadsFewSegmentsThatDoNotHaveTheName(t *testing.T) {
	m := spread(60_000)
	for _, m := range []*Machine{m, restored(t, m)} {
		asked, read := 0, 0
		for _, name := range []string{"nobody", "n", "n/", "n/060000", "n/999999", "m/000001", "a/b/c", "jobs/nightly"} {
			if events, _ := m.History(name, 10); len(events) != 0 {
				t.Errorf("%d events of %q", len(events), name)
			}
			for i := range m.history.segments {
				asked++
				if m.history.segments[i].filter.has(uint32(hashText(0, name))) {
					read++
				}
			}
		}
		if len(m.history.segments) < 10 || read > asked/20 {
			t.Errorf("%d of %d segments were read, want one in 20 at most", read, asked)
		}
	}
}

func TestEveryNameOfTheHistoryIsFound(t *testing.T) {
	m := spread(5_000)
	for _, m := range []*Machine{m, restored(t, m)} {
		for i := range 5_000 {
			name := fmt.Sprintf("n/%06d", i)
			if events, _ := m.History(name, 10); len(events) != 2 {
				t.Fatalf("%d events of %q, want 2", len(events), name)
			}
		}
	}
}

func BenchmarkHistoryOfNobody(b *testing.B) {
	m := spread(150_000)
	for b.Loop() {
		m.History("nobody", 100)
	}
}
