package machine

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-dev/lockstep/server/command"
)

// withLeases returns two live sessions, the second with a revoked claim that is closing.
func withLeases() (m *Machine, ids []command.SessionID, closing command.ClaimID) {
	m = New()
	apply(m, newest, command.SetTokenFloor{Floor: 1})
	for i := range 2 {
		ids = append(ids, apply(m, command.OpenSession{TTL: 10_000, Random: [8]byte{byte(i)}, ClientNumbered: true}).Results[0].Session)
	}
	token := apply(m, exclusive(ids[1], 1, "a")).Results[0].Claim.Token
	closing = command.ClaimID{Session: ids[1], Seq: 1}
	apply(m, command.Revoke{Claim: closing, Token: token, By: "ann", Reason: "maintenance", Now: false})
	return m, ids, closing
}

// spans returns what a new leader has to time, by session or claim.
func spans(m *Machine) map[command.ClaimID]command.Timer {
	all := map[command.ClaimID]command.Timer{}
	for _, t := range m.Timers() {
		all[t.Claim] = t
	}
	return all
}

func TestACheckpointTellsTheNextLeaderWhatIsLeft(t *testing.T) {
	m, ids, closing := withLeases()
	apply(m, command.CheckpointLeases{
		Term: 1, Clock: 1_000,
		Sessions: []command.SessionEnd{{Session: ids[0], At: 8_000}, {Session: command.SessionID{9}, At: 1}},
		Delays:   []command.DelayEnd{{Claim: closing, At: 9_000}},
	})
	apply(m, command.CheckpointLeases{Term: 1, Clock: 4_000})
	apply(m, command.CheckpointLeases{Term: 1, Clock: 3_000}) // it does not fall
	apply(m, command.CheckpointLeases{Term: 9, Clock: 7_000, Sessions: []command.SessionEnd{{Session: ids[0], At: 1}}}, command.RenewLeases{Term: 9, Sessions: ids[:1]})
	want := map[command.ClaimID]command.Timer{
		{Session: ids[0]}: {Kind: command.SessionStarted, Claim: command.ClaimID{Session: ids[0]}, Span: 4_000, Checkpointed: true},
		{Session: ids[1]}: {Kind: command.SessionStarted, Claim: command.ClaimID{Session: ids[1]}, Span: 10_000, Checkpointed: false},
		closing:           {Kind: command.DelayStarted, Claim: closing, Span: 5_000, Checkpointed: true},
	}
	if diff := cmp.Diff(want, spans(m)); diff != "" {
		t.Error(diff)
	}
	first, _ := m.Session(ids[0])
	second, _ := m.Session(ids[1])
	if !first.Checkpointed || second.Checkpointed || m.Counts().Checkpointed != 2 {
		t.Errorf("written down: %v, %v, %d in all", first.Checkpointed, second.Checkpointed, m.Counts().Checkpointed)
	}
	apply(m, command.CheckpointLeases{Term: 1, Clock: 20_000})
	if left := spans(m)[closing].Span; left != 0 {
		t.Errorf("%d ms left of a delay that is over", left)
	}
	apply(m, command.RenewLeases{Term: 1, Sessions: ids}, command.Release{Session: ids[1], Seq: 1, Token: 1})
	if left := spans(m)[command.ClaimID{Session: ids[0]}]; left.Span != 10_000 || left.Checkpointed || m.Counts().Checkpointed != 0 {
		t.Errorf("after the renewal: %+v, %d written down", left, m.Counts().Checkpointed)
	}
}

func TestWhatIsWrittenDownOfLeasesGoesWithTheSession(t *testing.T) {
	m, ids, closing := withLeases()
	apply(m, command.CheckpointLeases{
		Term: 1, Clock: 1,
		Sessions: []command.SessionEnd{{Session: ids[0], At: 8}, {Session: ids[1], At: 8}},
		Delays:   []command.DelayEnd{{Claim: closing, At: 9}},
	})
	apply(m, command.Expire{Term: 1, Sessions: ids[:1]}, command.CloseSession{Session: ids[1]})
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
	apply(m, command.CheckpointLeases{
		Term: 1, Clock: 1_000,
		Sessions: []command.SessionEnd{{Session: ids[0], At: 8_000}},
		Delays:   []command.DelayEnd{{Claim: closing, At: 9_000}},
	})
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
		apply(r, command.CheckpointLeases{Term: 1, Clock: 2_000}, command.RenewLeases{Term: 1, Sessions: ids})
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
	mustPanic(t, "feature level 1", func() { apply(New(), command.CheckpointLeases{Term: 1}) })
	mustPanic(t, "feature level 1", func() { apply(New(), command.RenewLeases{Term: 1}) })
}

func TestTheRunningHashCoversWhatIsWrittenDown(t *testing.T) {
	hashes := map[uint64]bool{}
	for _, at := range []command.Millis{8_000, 9_000} {
		m, ids, _ := withLeases()
		apply(m, command.CheckpointLeases{Term: 1, Clock: 1, Sessions: []command.SessionEnd{{Session: ids[0], At: at}}})
		hashes[m.Hash()] = true
	}
	if len(hashes) != 2 {
		t.Error("two ends of a lease give one hash")
	}
}
