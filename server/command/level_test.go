package command

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
)

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
		_, err := decodeBody(&Decoder{}, byte(kind))
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

func TestAnEntryOfANewerFormatIsRefusedAsNewer(t *testing.T) {
	if _, err := DecodeEntry([]byte{entryVersion + 1}); !errors.Is(err, ErrNewer) {
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
		d := NewDecoder(string(AppendLimits(nil, &l)))
		if got := d.Limits(); got != l || d.End() != nil {
			t.Errorf("level %d comes back as %+v: %v", level, got, d.End())
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

// TestWhatAppliesDependOnIsPinned pins what package command has of it: see the test of this name in
// package machine.
func TestWhatAppliesDependOnIsPinned(t *testing.T) {
	got := [...]uint64{MaxNames, uint64(MaxToken), MaxCommands, FirstLevel, BirthLevel, LeaseLevel, SecretLevel}
	want := [...]uint64{16, 1<<53 - 1, 1 << 16, 1, 2, 2, 3}
	if got != want {
		t.Errorf("%v, want %v", got, want)
	}
	l := DefaultLimits()
	bounds := ""
	for _, f := range l.allFields() {
		if f.level <= FirstLevel {
			bounds += fmt.Sprint(f.min, "-", f.max, " ")
		}
	}
	if want := "1-4294967295 1-10000000 1-1000000 16-1000000 1-1000000 1-10000 65536-1073741824 65536-1073741824 "; bounds != want {
		t.Errorf("bounds of the first limits: %s, want %s", bounds, want)
	}
}
