package storage

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
)

// withSnapshots makes a directory with a log up to 30 and snapshots at 10 and 20.
func withSnapshots(t *testing.T, fs vfs.FS, dir string) *Store {
	t.Helper()
	s := started(t, fs, dir)
	write(t, s, 2, 2, 30)
	for _, index := range []uint64{10, 20} {
		snapshotAt(t, s, 2, index, "state at "+string(rune('0'+index/10)))
		if err := s.Compact(testGroup, index); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestARestartStartsFromTheNewestSnapshot(t *testing.T) {
	dir := t.TempDir() + "/data"
	closeStore(t, withSnapshots(t, vfs.Default, dir))
	s := open(t, vfs.Default, dir)
	r := recovered(t, s)
	if r.Snapshot.GetIndex() != 20 || r.Empty || len(r.Entries) != 10 || len(r.Snapshot.GetConfState().GetVoters()) != 3 {
		t.Fatalf("recovered %s", describe(r))
	}
	if got := content(t, s, r.Snapshot); got != "state at 2" {
		t.Errorf("content %q", got)
	}
}

func TestALargeSnapshotComesBackAsItWas(t *testing.T) {
	s := started(t, vfs.NewMem(), "data")
	write(t, s, 2, 2, 2)
	var want bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 2))
	for want.Len() < 3*chunkSize+17 {
		want.WriteByte(byte(rng.Uint32()))
	}
	meta := snapshotAt(t, s, 2, 2, want.String())
	if got := content(t, s, meta); got != want.String() {
		t.Errorf("%d bytes came back, %d were written, or they differ", len(got), want.Len())
	}
}

// A watchedFS notes up to where each of its new files was written out before its sync.
type watchedFS struct {
	vfs.FS
	offsets *[]int64
}

func (w watchedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, category)
	if err != nil || !strings.Contains(name, snapshotsName) {
		return f, err
	}
	return watchedFile{f, w.offsets}, nil
}

type watchedFile struct {
	vfs.File
	offsets *[]int64
}

func (w watchedFile) SyncTo(length int64) (bool, error) {
	*w.offsets = append(*w.offsets, length)
	return w.File.SyncTo(length)
}

func TestALargeSnapshotIsWrittenOutInParts(t *testing.T) {
	const size = 20 << 20
	var offsets []int64
	s := started(t, watchedFS{vfs.Default, &offsets}, t.TempDir()+"/data")
	write(t, s, 2, 2, 2)
	snapshotAt(t, s, 2, 2, strings.Repeat("x", size))
	last := int64(0)
	for _, offset := range append(offsets, size) {
		if part := offset - last; part > writeOutEvery+(1<<20)+2*chunkSize { // Pebble leaves the last MiB of what is written
			t.Errorf("%d bytes were written out at once, up to %d", part, offset)
		}
		last = offset
	}
}

func TestADamagedNewestSnapshotFallsBackToTheOlderOne(t *testing.T) {
	damage := map[string]func(t *testing.T, name string){
		"flipped bit in the content": func(t *testing.T, name string) { flip(t, name, 110) },
		"flipped bit in the header":  func(t *testing.T, name string) { flip(t, name, 20) },
		"cut off":                    func(t *testing.T, name string) { check(t, os.Truncate(name, 120)) },
		"empty":                      func(t *testing.T, name string) { check(t, os.Truncate(name, 0)) },
		"gone":                       func(t *testing.T, name string) { check(t, os.Remove(name)) },
		"swapped with the older": func(t *testing.T, name string) {
			b, err := os.ReadFile(filepath.Dir(name) + "/" + snapshotRef{group: testGroup, index: 10, term: 2}.name())
			check(t, err, os.WriteFile(name, b, 0o600))
		},
	}
	for what, do := range damage {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir() + "/data"
			closeStore(t, withSnapshots(t, vfs.Default, dir))
			do(t, dir+"/snapshots/"+snapshotRef{group: testGroup, index: 20, term: 2}.name())
			s := open(t, vfs.Default, dir)
			r := recovered(t, s)
			if r.Snapshot.GetIndex() != 10 || len(r.Entries) != 20 {
				t.Errorf("recovered %s", describe(r))
			}
		})
	}
}

func TestADamagedSnapshotIsNotCountedAmongThoseThatAreKept(t *testing.T) {
	dir := t.TempDir() + "/data"
	file := func(index uint64) string {
		return dir + "/snapshots/" + snapshotRef{group: testGroup, index: index, term: 2}.name()
	}
	closeStore(t, withSnapshots(t, vfs.Default, dir))
	flip(t, file(20), 110)
	s := open(t, vfs.Default, dir)
	recovered(t, s)
	snapshotAt(t, s, 2, 25, "25")
	check(t, s.Compact(testGroup, 25))
	closeStore(t, s)
	flip(t, file(25), 80)
	s = open(t, vfs.Default, dir)
	if r := recovered(t, s); r.Snapshot.GetIndex() != 10 || len(r.Entries) != 20 {
		t.Errorf("recovered %s", describe(r))
	}
	if _, err := os.Stat(file(20) + damagedSuffix); err != nil {
		t.Errorf("the damaged file is not there to be looked at: %v", err)
	}
}

func TestNoGoodSnapshotIsRefused(t *testing.T) {
	dir := t.TempDir() + "/data"
	closeStore(t, withSnapshots(t, vfs.Default, dir))
	for _, index := range []uint64{10, 20} {
		flip(t, dir+"/snapshots/"+snapshotRef{group: testGroup, index: index, term: 2}.name(), 110)
	}
	refused(t, vfs.Default, dir, ErrDamaged, "checksum")
}

func TestASnapshotOfANewerVersionIsRefused(t *testing.T) {
	dir := t.TempDir() + "/data"
	closeStore(t, withSnapshots(t, vfs.Default, dir))
	flip(t, dir+"/snapshots/"+snapshotRef{group: testGroup, index: 20, term: 2}.name(), 6)
	refused(t, vfs.Default, dir, ErrNewer)
}

func TestUnfinishedSnapshotsAreRemoved(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := started(t, fs, "data")
	write(t, s, 2, 2, 5)
	w, err := s.CreateSnapshot(testGroup, &raftpb.SnapshotMetadata{Index: new(uint64(5)), Term: new(uint64(2))})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := io.WriteString(w, strings.Repeat("x", 2*chunkSize)); err != nil {
		t.Fatal(err)
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	s = open(t, after, "data")
	if r := recovered(t, s); !r.Empty || len(r.Entries) != 4 {
		t.Errorf("recovered %s", describe(r))
	}
	if names, err := after.List("data/snapshots"); err != nil || len(names) != 0 {
		t.Errorf("left: %v %v", names, err)
	}
}

func TestOnlyTheLastTwoSnapshotsAndTheirLogAreKept(t *testing.T) {
	s := withSnapshots(t, vfs.NewMem(), "data")
	snapshotAt(t, s, 2, 25, "25")
	if err := s.Compact(testGroup, 25); err != nil {
		t.Fatal(err)
	}
	refs := s.snapshots(testGroup)
	if len(refs) != 2 || refs[0].index != 20 || refs[1].index != 25 {
		t.Errorf("kept %+v", refs)
	}
	es, err := s.readEntries(testGroup)
	if err != nil || len(es) != 11 || es[0].GetIndex() != 20 {
		t.Errorf("%d entries are left, %v", len(es), err)
	}
}

// receivedAt stores a snapshot as if a leader had sent it.
func receivedAt(t *testing.T, s *Store, term, index uint64) *raftpb.Message {
	t.Helper()
	meta := &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: conf(1, 2, 3, 4)}
	fill(t, meta, "from the leader", s.ReceiveSnapshot)
	m := appendMsg(hard(term, 0, index), nil)
	m.Snapshot = &raftpb.Snapshot{Metadata: meta}
	return m
}

func TestAReceivedSnapshotReplacesTheLog(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := withSnapshots(t, fs, "data")
	m := receivedAt(t, s, 5, 100)
	if err := s.Append(testGroup, []*raftpb.Message{m, appendMsg(nil, entries(5, 101, 102))}); err != nil {
		t.Fatal(err)
	}
	s = open(t, fs.CrashClone(vfs.CrashCloneCfg{}), "data")
	wantRecovered(t, s, "term 5 vote 0 commit 100, snapshot 5/100 5/101 5/102")
	r := recovered(t, s)
	if got := content(t, s, r.Snapshot); got != "from the leader" || len(r.Snapshot.GetConfState().GetVoters()) != 4 {
		t.Errorf("content %q, members %v", got, r.Snapshot.GetConfState())
	}
	if refs := s.snapshots(testGroup); len(refs) != 1 {
		t.Errorf("kept %+v", refs)
	}
}

func TestASnapshotThatWasReceivedButNotTakenOverIsIgnored(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := withSnapshots(t, fs, "data")
	for _, index := range []uint64{100, 200, 300} { // must not push out the node's own ones
		receivedAt(t, s, 5, index)
	}
	s = open(t, fs.CrashClone(vfs.CrashCloneCfg{}), "data")
	if r := recovered(t, s); r.Snapshot.GetIndex() != 20 || len(r.Entries) != 10 {
		t.Errorf("recovered %s", describe(r))
	}
}

func TestASnapshotThatIsReceivedDuringARestartPushesNothingOut(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := withSnapshots(t, fs, "data")
	for _, index := range []uint64{100, 200} {
		receivedAt(t, s, 5, index)
	}
	s = open(t, fs.CrashClone(vfs.CrashCloneCfg{}), "data")
	receivedAt(t, s, 5, 300) // peers may be faster than reading the log
	if r := recovered(t, s); r.Snapshot.GetIndex() != 20 || len(r.Entries) != 10 {
		t.Errorf("recovered %s", describe(r))
	}
}

func TestASnapshotWithoutItsFileIsNotTakenOver(t *testing.T) {
	s := started(t, vfs.NewMem(), "data")
	m := appendMsg(hard(5, 0, 100), nil)
	m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(100)), Term: new(uint64(5))}}
	if err := s.Append(testGroup, []*raftpb.Message{m}); err == nil {
		t.Error("it was")
	}
	endPebble(s)
}

func TestAReaderGivesNothingBehindDamage(t *testing.T) {
	dir := t.TempDir() + "/data"
	s := started(t, vfs.Default, dir)
	write(t, s, 2, 2, 2)
	meta := snapshotAt(t, s, 2, 2, strings.Repeat("a", chunkSize)+strings.Repeat("b", chunkSize))
	flip(t, dir+"/snapshots/"+snapshotRef{group: testGroup, index: 2, term: 2}.name(), chunkSize+1000)
	r, err := s.OpenSnapshot(testGroup, meta)
	check(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	if !errors.Is(err, errChecksum) || len(b) != chunkSize {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// FuzzSnapshot reads arbitrary bytes as a snapshot file. It must not panic, nor allocate what a
// length claims.
func FuzzSnapshot(f *testing.F) {
	mem := vfs.NewMem()
	s, err := Open(Config{Dir: "data", FS: mem, ClusterID: testCluster, NodeID: testNode})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	ref := snapshotRef{group: testGroup, index: 2, term: 2}
	head, err := s.snapshotHeader(ref, &raftpb.SnapshotMetadata{ConfState: conf(1)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(head)
	f.Add(append(head, 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := writeFile(mem, "data/snapshots", ref.name(), b); err != nil {
			t.Fatal(err)
		}
		if _, err := s.verifySnapshot(ref); err == nil {
			t.Error("taken for a snapshot")
		}
	})
}
