package machine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
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
		e, err := DecodeEntry(log[n : n+int(size)])
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

// levels has the levels of all kinds of commands. An old kind never changes; a new one gets the
// newest level.
var levels = map[byte]uint32{
	kindOpenSession: 1, kindCloseSession: 1, kindAcquire: 1, kindCancel: 1, kindRelease: 1, kindExpire: 1, kindEndWait: 1,
	kindEndDelay: 1, kindRevoke: 1, kindSetTokenFloor: 1, kindSetLimits: 1, kindCheckHash: 1, kindEndRecovery: 1,
	kindSetMember: 1, kindRemoveMember: 1,
	kindSetBirth: 2, kindCheckpointLeases: 2, kindRenewLeases: 2,
	kindOpenSessionHashed: 3,
}

func TestEachKindOfCommandHasItsLevel(t *testing.T) {
	met := map[byte]bool{}
	for _, c := range oneOfEach() {
		kind := appendBody(nil, c)[0]
		met[kind] = true
		want, ok := levels[kind]
		if got := LevelOf(c); !ok || got != want || got > FeatureLevel {
			t.Errorf("%T: level %d, want %d", c, got, want)
		}
		if err := CheckLevels(want, []Command{CloseSession{}, c}); err != nil {
			t.Errorf("%T at its level: %v", c, err)
		}
		if err := CheckLevels(want-1, []Command{CloseSession{}, c}); err == nil {
			t.Errorf("%T may be proposed before its level", c)
		}
		if err := CheckLevels(1, []Command{SetLimits{DefaultLimits()}, c}); err != nil {
			t.Errorf("%T after the limits that raise the level: %v", c, err)
		}
	}
	for kind := range 256 {
		_, err := decodeBody(&decoder{}, byte(kind))
		if known := !errors.Is(err, ErrNewer); known != met[byte(kind)] {
			t.Errorf("kind %d: decoded %v, in oneOfEach and with a level %v", kind, known, met[byte(kind)])
		}
	}
}

func TestLimitsOfANewerLevelAreRefusedAsNewer(t *testing.T) {
	limits := DefaultLimits()
	limits.FeatureLevel++
	b := AppendEntry(nil, &Entry{Commands: []Command{SetLimits{limits}}})
	if _, err := DecodeEntry(b); !errors.Is(err, ErrNewer) {
		t.Errorf("error %v", err)
	}
}

func TestLimitsOfAnOlderLevelHaveNoneThatCameLater(t *testing.T) {
	all := DefaultLimits()
	for level := uint32(1); level <= FeatureLevel; level++ {
		l := all.At(level, Limits{})
		for i, f := range l.allFields() {
			want := *all.allFields()[i].value
			if f.level > level {
				want = 0
			}
			if i > 0 && *f.value != want {
				t.Errorf("level %d: %s is %d, want %d", level, f.name, *f.value, want)
			}
		}
		if err := l.Check(); err != nil {
			t.Error(err)
		}
		if got := l.At(FeatureLevel, all); got != all {
			t.Errorf("raised from level %d: %+v", level, got)
		}
		d := &decoder{s: string(appendLimits(nil, &l))}
		if got := decodeLimits(d); got != l || d.end() != nil {
			t.Errorf("level %d comes back as %+v: %v", level, got, d.end())
		}
	}
}

func TestTheFieldsOfLimitsAreInTheOrderOfTheirLevels(t *testing.T) {
	l := DefaultLimits()
	all := l.allFields()
	if !slices.IsSortedFunc(all[:], func(a, b limitField) int { return cmp.Compare(a.level, b.level) }) {
		t.Error("a field goes before one of an older level: older logs would be read wrong")
	}
}

func TestASnapshotOfANewerBuildSaysWhatToDo(t *testing.T) {
	m := New()
	m.limits.FeatureLevel = FeatureLevel + 1
	if _, err := Restore(bytes.NewReader(snapshot(m))); !errors.Is(err, ErrNewer) || errors.Is(err, ErrSnapshot) {
		t.Errorf("a newer feature level: %v", err)
	}
	header := m.appendHeader(nil)
	header[0] = leaseFormat + 1 // one byte
	b, _ := (&Capture{m: m, header: header}).Next()
	if _, err := Restore(bytes.NewReader(b)); !errors.Is(err, ErrNewer) || errors.Is(err, ErrSnapshot) {
		t.Errorf("a newer format: %v", err)
	}
	if _, err := DecodeEntry([]byte{entryVersion + 1}); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer entry: %v", err)
	}
}

// TestWhatAppliesDependOnIsPinned: builds of one feature level run in the same cluster, so what
// apply does with an entry must not depend on the build. If you change one of these, make it one of
// the Limits, or make the new value depend on the feature level.
func TestWhatAppliesDependOnIsPinned(t *testing.T) {
	got := [...]uint64{rememberedSessions, MaxMembers, maxMemberText, MaxNames, maxPermits, uint64(MaxToken), maxSegment, shardCount, MaxCommands, hashPrime, sessionBytes, claimBytes, outcomeBytes}
	want := [...]uint64{65_536, 1_024, 512, 16, 1 << 20, 1<<53 - 1, 256 << 10, 4_096, 1 << 16, 0x9e3779b97f4a7c15, 64, 96, 48}
	if got != want {
		t.Errorf("%v, want %v", got, want)
	}
	l := DefaultLimits()
	bounds := ""
	for _, f := range l.allFields() {
		if f.level <= firstLevel {
			bounds += fmt.Sprint(f.min, "-", f.max, " ")
		}
	}
	if want := "1-4294967295 1-10000000 1-1000000 16-1000000 1-1000000 1-10000 65536-1073741824 65536-1073741824 "; bounds != want {
		t.Errorf("bounds of the first limits: %s, want %s", bounds, want)
	}
}
