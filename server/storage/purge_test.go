package storage

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
)

// holding lists the files below dir that contain the text.
func holding(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // Pebble may have removed it
		}
		if content, err := os.ReadFile(path); err == nil && bytes.Contains(content, []byte(text)) {
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAPurgedDirectoryHasNothingOfWhatWasForgotten(t *testing.T) {
	const secret = "a secret in an entry"
	dir := t.TempDir()
	s := started(t, vfs.Default, dir)
	var last uint64
	write := func(content string, n int) {
		t.Helper()
		es := entries(2, last+2, last+1+uint64(n))
		for _, e := range es {
			e.Data = fmt.Appendf(nil, "%s %d", content, e.GetIndex())
		}
		last += uint64(n)
		if err := s.Append(testGroup, []*raftpb.Message{{Entries: es, Term: new(uint64(2)), Vote: new(uint64(0)), Commit: new(last + 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, 1000)
	for range 3 { // some of it in tables and in old logs
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		write(secret, 10)
	}
	write("harmless", 20)
	for _, back := range []uint64{10, 5} {
		at := &raftpb.SnapshotMetadata{Index: new(last + 1 - back), Term: new(uint64(2)), ConfState: conf(1, 2, 3)}
		fill(t, at, "state", s.CreateSnapshot)
	}
	if err := s.Compact(testGroup, last+1-5); err != nil {
		t.Fatal(err)
	}
	if len(holding(t, dir, secret)) == 0 {
		t.Fatal("nothing is left of it without a purge: the test shows nothing")
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	write("harmless", 10)
	// Pebble removes files on its own goroutine.
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		names := holding(t, dir, secret)
		if len(names) == 0 {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("the secret is in %v", names)
		}
	}
	closeStore(t, s)
	again := open(t, vfs.Default, dir)
	rec, err := again.Recover(testGroup)
	if err != nil || rec.Entries[len(rec.Entries)-1].GetIndex() != last+1 {
		t.Errorf("recovered %+v, %v", rec, err)
	}
}

func TestADuePurgeIsRemembered(t *testing.T) {
	dir := t.TempDir()
	s := started(t, vfs.Default, dir)
	for _, due := range []bool{false, true, false} {
		if due {
			if err := s.RememberPurge(true); err != nil {
				t.Fatal(err)
			}
		} else if err := s.RememberPurge(false); err != nil {
			t.Fatal(err)
		}
		if got, err := s.PurgeDue(); err != nil || got != due {
			t.Errorf("due %v, %v, want %v", got, err, due)
		}
	}
}
