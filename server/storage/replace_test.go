package storage

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
)

func TestADirectoryIsSeededAndStartsFromThatState(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, "data")
	meta := &raftpb.SnapshotMetadata{Index: new(uint64(40)), Term: new(uint64(7)), ConfState: conf(1, 2, 3)}
	if err := s.Seed(testGroup, meta, strings.NewReader("the state")); err != nil {
		t.Fatal(err)
	}
	wantRecovered(t, s, "term 7 vote 0 commit 40, snapshot 7/40")
	got, content, err := s.LatestSnapshot(testGroup, 40)
	if err != nil || got.GetIndex() != 40 {
		t.Fatalf("%v, %v", got, err)
	}
	if err := content.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := s.LatestSnapshot(testGroup, 41); err == nil {
		t.Error("a snapshot from the future was found")
	}
}

func TestTheOriginOfADirectoryIsReadBackAndOldOnesHaveNone(t *testing.T) {
	fs := vfs.NewMem()
	for _, origin := range []string{"", "0123abcd"} {
		dir := "data" + origin
		s, err := Open(Config{Dir: dir, FS: fs, ClusterID: "c", NodeID: 5, Origin: origin})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		o, found, err := ReadOwner(fs, dir)
		if want := (Owner{"c", 5, origin}); err != nil || !found || o != want {
			t.Errorf("%+v, %v, %v; want %+v", o, found, err, want)
		}
		if s, err = Open(Config{Dir: dir, FS: fs, ClusterID: "c", NodeID: 5}); err != nil {
			t.Errorf("origin %q: a later start: %v", origin, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, found, err := ReadOwner(fs, "nowhere"); found || err != nil {
		t.Errorf("nowhere: %v, %v", found, err)
	}
}

func TestAReplacementThatWasInterruptedIsRefusedUntilItIsMadeAgain(t *testing.T) {
	fs := vfs.NewMem()
	if err := started(t, fs, "data").Close(); err != nil {
		t.Fatal(err)
	}
	if err := BeginReplace(fs, "data"); err != nil || !Replacing(fs, "data") {
		t.Fatalf("begin: %v", err)
	}
	for range 2 { // the second time after a crash while the new content was being created
		if err := SetAside(fs, "data"); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: "data", FS: fs, ClusterID: "new", NodeID: 9}); !errors.Is(err, ErrDamaged) {
			t.Fatalf("an ordinary start: %v", err)
		}
		s, err := Open(Config{Dir: "data", FS: fs, ClusterID: "new", NodeID: 9, Replacing: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := EndReplace(fs, "data"); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Dir: "data", FS: fs, ClusterID: "new", NodeID: 9})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("data/replaced-001")
	if err != nil || !slices.Contains(names, identityName) || !slices.Contains(names, logName) {
		t.Errorf("what was there before: %v, %v", names, err)
	}
}
