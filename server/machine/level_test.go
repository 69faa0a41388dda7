package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

// TestALogOfLevelOneGivesWhatItGaveThen replays a log and reads a snapshot written by the last
// build of feature level 1, with the hash that it had after each entry. In a cluster at that level,
// nodes of both builds apply the same log.
//
// testdata/level1/log consists of entries: index, size, entry, and the hash in 8 bytes.
func TestALogOfLevelOneGivesWhatItGaveThen(t *testing.T) {
	log, err := os.ReadFile("testdata/level1/log")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/level1/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	m := New()
	for len(log) > 0 {
		index, n := binary.Uvarint(log)
		log = log[n:]
		size, n := binary.Uvarint(log)
		e, err := command.DecodeEntry(log[n : n+int(size)])
		if err != nil {
			t.Fatal(err)
		}
		log = log[n+int(size):]
		m.Apply(index, 1, &e)
		if then := binary.BigEndian.Uint64(log); m.Hash() != then {
			t.Fatalf("entry %d %+v: hash %016x, then it was %016x", index, e.Commands, m.Hash(), then)
		}
		log = log[8:]
	}
	if !bytes.Equal(snapshot(m), want) {
		t.Error("the snapshot is another than then")
	}
	old, err := Restore(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshot(old), want) || old.Limits().FeatureLevel != 1 {
		t.Error("the old snapshot is read as another state")
	}
}

func TestASnapshotOfANewerBuildSaysWhatToDo(t *testing.T) {
	m := New()
	m.limits.FeatureLevel = command.FeatureLevel + 1
	if _, err := Restore(bytes.NewReader(snapshot(m))); !errors.Is(err, command.ErrNewer) || errors.Is(err, ErrSnapshot) {
		t.Errorf("a newer feature level: %v", err)
	}
	header := m.appendHeader(nil)
	header[0] = leaseFormat + 1 // one byte
	b, _ := (&Capture{m: m, header: header}).Next()
	if _, err := Restore(bytes.NewReader(b)); !errors.Is(err, command.ErrNewer) || errors.Is(err, ErrSnapshot) {
		t.Errorf("a newer format: %v", err)
	}
}

// TestWhatAppliesDependOnIsPinned: builds of one feature level run in the same cluster, so what
// apply does with an entry must not depend on the build. If you change one of these, make it one of
// the Limits, or make the new value depend on the feature level. A test of package command pins the
// bounds of the limits.
func TestWhatAppliesDependOnIsPinned(t *testing.T) {
	got := [...]uint64{
		rememberedSessions, MaxMembers, maxMemberText, command.MaxNames, MaxPermits, uint64(command.MaxToken), maxSegment,
		shardCount, command.MaxCommands, hashPrime, sessionBytes, claimBytes, outcomeBytes,
	}
	want := [...]uint64{65_536, 1_024, 512, 16, 1 << 20, 1<<53 - 1, 256 << 10, 4_096, 1 << 16, 0x9e3779b97f4a7c15, 64, 96, 48}
	if got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
