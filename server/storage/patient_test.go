package storage

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"
)

// drained opens a store in a file system that has no file descriptors left while dry is set.
func drained(t *testing.T, fs vfs.FS, dir string, dry *atomic.Bool) (s *Store, waits *atomic.Int64) {
	t.Helper()
	waits = new(atomic.Int64)
	none := errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpOpen, errorfs.OpOpenDir, errorfs.OpReuseForWrite, errorfs.OpLock, errorfs.OpList:
			if dry.Load() {
				return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EMFILE}
			}
		}
		return nil
	})
	s, err := Open(Config{Dir: dir, FS: errorfs.Wrap(fs, none), ClusterID: testCluster, NodeID: testNode, Waited: func() { waits.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s, waits
}

func TestTheLogWaitsForAFileDescriptorAndGoesOn(t *testing.T) {
	var dry atomic.Bool
	dir := t.TempDir() + "/data"
	s, waits := drained(t, vfs.Default, dir, &dry)
	if err := s.Bootstrap(testGroup, conf(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	dry.Store(true)
	big := make([]byte, 256<<10)
	done := make(chan error, 1)
	var at atomic.Uint64
	const last = 24 // 6 MiB: more than the first log files take
	go func() {
		for i := uint64(2); i <= last; i++ {
			e := &raftpb.Entry{Term: new(uint64(2)), Index: new(i), Type: raftpb.EntryNormal.Enum(), Data: big}
			if err := s.Append(testGroup, []*raftpb.Message{appendMsg(hard(2, 1, i), []*raftpb.Entry{e})}); err != nil {
				done <- err
				return
			}
			at.Store(i)
		}
		done <- nil
	}()
	for deadline := time.Now().Add(time.Minute); waits.Load() == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		select {
		case err := <-done:
			t.Fatalf("the log ended at %d: %v", at.Load(), err)
		default:
		}
	}
	if !s.Starved() || s.Err() != nil {
		t.Fatalf("starved %v, failure %v", s.Starved(), s.Err())
	}
	dry.Store(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if r := recovered(t, open(t, vfs.Default, dir)); r.Entries[len(r.Entries)-1].GetIndex() != last {
		t.Errorf("%d entries are there", len(r.Entries))
	}
}

func TestASnapshotWaitsForAFileDescriptor(t *testing.T) {
	var dry atomic.Bool
	s, waits := drained(t, vfs.NewMem(), "data", &dry)
	if err := s.Bootstrap(testGroup, conf(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	write(t, s, 2, 2, 4)
	dry.Store(true)
	made := make(chan error, 1)
	go func() {
		w, err := s.CreateSnapshot(testGroup, &raftpb.SnapshotMetadata{Index: new(uint64(3)), Term: new(uint64(2)), ConfState: conf(1, 2, 3)})
		if err == nil {
			w.Abort()
		}
		made <- err
	}()
	for deadline := time.Now().Add(time.Minute); waits.Load() == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	dry.Store(false)
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if waits.Load() == 0 {
		t.Error("it did not wait")
	}
}

func TestWaitingForADescriptorEndsWhenTheNodeStops(t *testing.T) {
	var dry atomic.Bool
	s, _ := drained(t, vfs.NewMem(), "data", &dry)
	dry.Store(true)
	listed := make(chan error, 1)
	go func() {
		_, err := s.fs.List("data")
		listed <- err
	}()
	s.Hurry()
	if err := <-listed; !errors.Is(err, syscall.EMFILE) {
		t.Errorf("err = %v", err)
	}
	dry.Store(false)
}

func TestADirectoryIsNotOpenedWithoutDescriptors(t *testing.T) {
	dry := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate {
			return syscall.ENFILE
		}
		return nil
	})
	_, err := Open(Config{Dir: filepath.Join(t.TempDir(), "data"), FS: errorfs.Wrap(vfs.Default, dry), ClusterID: testCluster, NodeID: testNode})
	if err == nil || !strings.Contains(err.Error(), syscall.ENFILE.Error()) {
		t.Errorf("err = %v", err)
	}
}

func TestASpareDescriptorIsGivenUpForTheLog(t *testing.T) {
	fs := &scarce{FS: vfs.NewMem()}
	p := newPatient(fs, func() { t.Error("it waited") }, slog.New(slog.DiscardHandler))
	defer p.close()
	fs.refuse = 3
	if _, err := p.Create("a", vfs.WriteCategoryUnspecified); err != nil {
		t.Fatal(err)
	}
	if got := len(p.mu.spare); got != spareDescriptors {
		t.Errorf("%d spare descriptors afterwards, want %d again", got, spareDescriptors)
	}
}

// A scarce file system has no descriptor for some file creations.
type scarce struct {
	vfs.FS
	refuse int
}

func (s *scarce) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if s.refuse > 0 {
		s.refuse--
		return nil, syscall.EMFILE
	}
	return s.FS.Create(name, c)
}
