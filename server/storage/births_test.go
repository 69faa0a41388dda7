package storage

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// crashed opens what is left of a directory after a power cut in which nothing unsynced survived.
func crashed(t *testing.T, fs *vfs.MemFS) (*Store, *vfs.MemFS) {
	t.Helper()
	left := fs.CrashClone(vfs.CrashCloneCfg{})
	c := cfg("data")
	c.FS = left
	s, err := Open(c)
	check(t, err)
	return s, left
}

func TestBirthsAndStartsSurviveAPowerCut(t *testing.T) {
	fs := vfs.NewCrashableMem()
	c := cfg("data")
	c.FS = fs
	s, err := Open(c)
	check(t, err)
	if b, err := s.Birth(); b != (BirthID{}) || err != nil {
		t.Fatalf("birth %v of a new directory, %v", b, err)
	}
	check(t, s.RememberBirth(BirthID{7}))
	check(t, s.RememberStart(9, Start{3, 4}))
	first, err := s.BeginStart(bytes.NewReader([]byte{0, 0, 0, 1}))
	check(t, err)

	again, fs2 := crashed(t, fs)
	closeStore(t, s)
	if b, err := again.Birth(); b != (BirthID{7}) || err != nil {
		t.Errorf("birth %v, %v", b, err)
	}
	check(t, again.RememberBirth(BirthID{7}))
	if err := again.RememberBirth(BirthID{8}); err == nil || !strings.Contains(err.Error(), "07000000") {
		t.Errorf("a second birth: %v", err)
	}
	if st, err := again.KnownStart(9); st != (Start{3, 4}) || err != nil {
		t.Errorf("start %v, %v", st, err)
	}
	if st, err := again.KnownStart(8); st != (Start{}) || err != nil {
		t.Errorf("start %v of a node not met, %v", st, err)
	}
	second, err := again.BeginStart(bytes.NewReader([]byte{0, 0, 0, 2}))
	check(t, err)
	if id, ok := second.At(1); first.Count != 1 || second.Count != 2 || !ok || id != 1 {
		t.Errorf("starts %v, then %v", first, second)
	}
	closeStore(t, again)
	third, _ := crashed(t, fs2)
	defer closeStore(t, third)
	var last Starts
	for i := range MaxStarts {
		last, err = third.BeginStart(bytes.NewReader([]byte{1, 1, 1, byte(i)}))
		check(t, err)
	}
	_, oldest := last.At(2)
	_, next := last.At(3)
	_, ahead := last.At(last.Count + 1)
	if last.Count != MaxStarts+2 || len(last.Last) != MaxStarts || oldest || !next || ahead {
		t.Errorf("%d starts, %d known; the second %v, the third %v, one to come %v", last.Count, len(last.Last), oldest, next, ahead)
	}
}

func TestAnotherNodesDirectoryIsNamed(t *testing.T) {
	c := cfg(ours(t))
	c.NodeID = 5
	c.NodeName = func(id uint64) string { return map[uint64]string{5: "n5", testNode: "n1"}[id] }
	refusedAs(t, c, ErrForeign, "node n1", "this node is n5")
}
