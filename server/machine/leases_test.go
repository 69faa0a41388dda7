package machine

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withLeases returns two live sessions, the second with a revoked claim that is closing.
func withLeases() (m *Machine, ids []SessionID, closing ClaimID) {
	m = New()
	apply(m, newest, SetTokenFloor{1})
	for i := range 2 {
		ids = append(ids, apply(m, OpenSession{TTL: 10_000, Random: [8]byte{byte(i)}, ClientNumbered: true}).Results[0].Session)
	}
	token := apply(m, exclusive(ids[1], 1, "a")).Results[0].Claim.Token
	closing = ClaimID{ids[1], 1}
	apply(m, Revoke{closing, token, "ann", "maintenance", false})
	return m, ids, closing
}

// spans returns what a new leader has to time, by session or claim.
func spans(m *Machine) map[ClaimID]Timer {
	all := map[ClaimID]Timer{}
	for _, t := range m.Timers() {
		all[t.Claim] = t
	}
	return all
}

func TestACheckpointTellsTheNextLeaderWhatIsLeft(t *testing.T) {
	m, ids, closing := withLeases()
	apply(m, CheckpointLeases{Term: 1, Clock: 1_000, Sessions: []SessionEnd{{ids[0], 8_000}, {SessionID{9}, 1}}, Delays: []DelayEnd{{closing, 9_000}}})
	apply(m, CheckpointLeases{Term: 1, Clock: 4_000})
	apply(m, CheckpointLeases{Term: 1, Clock: 3_000}) // it does not fall
	apply(m, CheckpointLeases{Term: 9, Clock: 7_000, Sessions: []SessionEnd{{ids[0], 1}}}, RenewLeases{9, ids[:1]})
	want := map[ClaimID]Timer{
		{Session: ids[0]}: {SessionStarted, ClaimID{Session: ids[0]}, 4_000, true},
		{Session: ids[1]}: {SessionStarted, ClaimID{Session: ids[1]}, 10_000, false},
		closing:           {DelayStarted, closing, 5_000, true},
	}
	if diff := cmp.Diff(want, spans(m)); diff != "" {
		t.Error(diff)
	}
	first, _ := m.Session(ids[0])
	second, _ := m.Session(ids[1])
	if !first.Checkpointed || second.Checkpointed || m.Counts().Checkpointed != 2 {
		t.Errorf("written down: %v, %v, %d in all", first.Checkpointed, second.Checkpointed, m.Counts().Checkpointed)
	}
	apply(m, CheckpointLeases{Term: 1, Clock: 20_000})
	if left := spans(m)[closing].Span; left != 0 {
		t.Errorf("%d ms left of a delay that is over", left)
	}
	apply(m, RenewLeases{1, ids}, Release{ids[1], 1, 1})
	if left := spans(m)[ClaimID{Session: ids[0]}]; left.Span != 10_000 || left.Checkpointed || m.Counts().Checkpointed != 0 {
		t.Errorf("after the renewal: %+v, %d written down", left, m.Counts().Checkpointed)
	}
}

func TestWhatIsWrittenDownOfLeasesGoesWithTheSession(t *testing.T) {
	m, ids, closing := withLeases()
	apply(m, CheckpointLeases{Term: 1, Clock: 1, Sessions: []SessionEnd{{ids[0], 8}, {ids[1], 8}}, Delays: []DelayEnd{{closing, 9}}})
	apply(m, Expire{1, ids[:1]}, CloseSession{ids[1]})
	if n := m.Counts().Checkpointed; n != 0 {
		t.Errorf("%d written down of nobody", n)
	}
	if err := m.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

func TestASnapshotHasWhatIsWrittenDownOfLeases(t *testing.T) {
	m, ids, closing := withLeases()
	before := snapshot(m)
	capture := m.StartCapture() // of the state before the checkpoint arrives
	apply(m, CheckpointLeases{Term: 1, Clock: 1_000, Sessions: []SessionEnd{{ids[0], 8_000}}, Delays: []DelayEnd{{closing, 9_000}}})
	var during bytes.Buffer
	for last := false; !last; {
		var chunk []byte
		chunk, last = capture.Next()
		during.Write(chunk)
	}
	if !bytes.Equal(before, during.Bytes()) {
		t.Error("the capture shows what came after its start")
	}
	n := restored(t, m)
	if diff := cmp.Diff(spans(m), spans(n)); diff != "" || n.LeaseClock() != 1_000 || n.Counts() != m.Counts() {
		t.Errorf("lease clock %d, counts %+v, %s", n.LeaseClock(), n.Counts(), diff)
	}
	for _, r := range []*Machine{m, n} {
		apply(r, CheckpointLeases{Term: 1, Clock: 2_000}, RenewLeases{1, ids})
	}
	if m.Hash() != n.Hash() || !bytes.Equal(snapshot(m), snapshot(n)) {
		t.Error("the restored machine went another way")
	}
}

// TestAClusterWithoutCheckpointsHasTheSnapshotsOfBefore: builds of the first feature level read
// them.
func TestAClusterWithoutCheckpointsHasTheSnapshotsOfBefore(t *testing.T) {
	m := busyMachine()
	const head = len(snapshotMagic) + 1 + 4 // the kind and the size of the first chunk
	if got := snapshot(m)[head]; got != snapshotFormat {
		t.Errorf("format %d, want %d", got, snapshotFormat)
	}
}

func TestCheckpointsOfLeasesNeedTheirFeatureLevel(t *testing.T) {
	mustPanic(t, "feature level 1", func() { apply(New(), CheckpointLeases{Term: 1}) })
	mustPanic(t, "feature level 1", func() { apply(New(), RenewLeases{Term: 1}) })
}

func TestTheRunningHashCoversWhatIsWrittenDown(t *testing.T) {
	hashes := map[uint64]bool{}
	for _, at := range []Millis{8_000, 9_000} {
		m, ids, _ := withLeases()
		apply(m, CheckpointLeases{Term: 1, Clock: 1, Sessions: []SessionEnd{{ids[0], at}}})
		hashes[m.Hash()] = true
	}
	if len(hashes) != 2 {
		t.Error("two ends of a lease give one hash")
	}
}
