package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LOCKSTEP_TEST_HOLD"); dir != "" {
		holdDirectory(dir)
		return
	}
	if os.Getenv(leaks) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// leaks is set in the process of a test whose store leaves goroutines until its process exits.
const leaks = "LOCKSTEP_TEST_LEAKS"

// inOwnProcess runs only the calling test in another process. It reports whether this is that
// process.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(leaks) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), leaks+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

const (
	testCluster = "c0ffee00c0ffee00c0ffee00c0ffee00"
	testNode    = 0x1122334455667788
	testGroup   = 1
)

// open opens a directory as the test node's. It is closed when the test ends, unless the test has
// done so.
func open(t *testing.T, fs vfs.FS, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, FS: fs, ClusterID: testCluster, NodeID: testNode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// started opens a new directory with a group of three members.
func started(t *testing.T, fs vfs.FS, dir string) *Store {
	t.Helper()
	s := open(t, fs, dir)
	if err := s.Bootstrap(testGroup, conf(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	return s
}

func conf(voters ...uint64) *raftpb.ConfState {
	return &raftpb.ConfState{Voters: voters, AutoLeave: new(false)}
}

func entries(term, from, to uint64) (es []*raftpb.Entry) {
	for i := from; i <= to; i++ {
		es = append(es, &raftpb.Entry{Term: new(term), Index: new(i), Type: raftpb.EntryNormal.Enum(), Data: fmt.Appendf(nil, "%d/%d", term, i)})
	}
	return es
}

func appendMsg(hs *raftpb.HardState, es []*raftpb.Entry) *raftpb.Message {
	m := &raftpb.Message{Type: raftpb.MsgStorageAppend.Enum(), Entries: es}
	if hs != nil {
		m.Term, m.Vote, m.Commit = hs.Term, hs.Vote, hs.Commit
	}
	return m
}

func hard(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(term), Vote: new(vote), Commit: new(commit)}
}

// write appends entries of a term and says that all are committed.
func write(t *testing.T, s *Store, term, from, to uint64) {
	t.Helper()
	if err := s.Append(testGroup, []*raftpb.Message{appendMsg(hard(term, 1, to), entries(term, from, to))}); err != nil {
		t.Fatal(err)
	}
}

func recovered(t *testing.T, s *Store) Recovered {
	t.Helper()
	r, err := s.Recover(testGroup)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// describe formats what was recovered in one line.
func describe(r Recovered) string {
	if !r.Found {
		return "nothing"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "term %d vote %d commit %d, snapshot %d/%d", r.HardState.GetTerm(), r.HardState.GetVote(),
		r.HardState.GetCommit(), r.Snapshot.GetTerm(), r.Snapshot.GetIndex())
	if r.Empty {
		b.WriteString(" (empty)")
	}
	for _, e := range r.Entries {
		fmt.Fprintf(&b, " %s", e.GetData())
	}
	return b.String()
}

func wantRecovered(t *testing.T, s *Store, want string) {
	t.Helper()
	if got := describe(recovered(t, s)); got != want {
		t.Errorf("recovered\n%s, want\n%s", got, want)
	}
}

// snapshotAt writes a snapshot of the node's own state.
func snapshotAt(t *testing.T, s *Store, term, index uint64, content string) *raftpb.SnapshotMetadata {
	t.Helper()
	meta := &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: conf(1, 2, 3)}
	fill(t, meta, content, s.CreateSnapshot)
	return meta
}

func fill(t *testing.T, meta *raftpb.SnapshotMetadata, content string, create func(uint32, *raftpb.SnapshotMetadata) (*SnapshotWriter, error)) {
	t.Helper()
	w, err := create(testGroup, meta)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, s *Store, meta *raftpb.SnapshotMetadata) string {
	t.Helper()
	r, err := s.OpenSnapshot(testGroup, meta)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// refused opens and recovers, and expects a refusal of this kind.
func refused(t *testing.T, fs vfs.FS, dir string, kind error, words ...string) {
	t.Helper()
	refusedAs(t, Config{Dir: dir, FS: fs, ClusterID: testCluster, NodeID: testNode}, kind, words...)
}

func refusedAs(t *testing.T, cfg Config, kind error, words ...string) {
	t.Helper()
	s, err := Open(cfg)
	if err == nil {
		defer closeStore(t, s)
		_, err = s.Recover(testGroup)
	}
	var r *RefusedError
	if !errors.As(err, &r) || !errors.Is(err, kind) {
		t.Fatalf("err = %v, want a refusal: %v", err, kind)
	}
	if r.Remedy == "" {
		t.Errorf("no way out in %q", err)
	}
	for _, w := range words {
		if !bytes.Contains([]byte(err.Error()), []byte(w)) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestANewDirectoryHasNothingAndIsBootstrappedOnce(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, "data")
	wantRecovered(t, s, "nothing")
	if err := s.Bootstrap(testGroup, conf(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	wantRecovered(t, s, "term 1 vote 0 commit 1, snapshot 1/1 (empty)")
	if got := recovered(t, s).Snapshot.GetConfState().GetVoters(); len(got) != 3 {
		t.Errorf("voters %v", got)
	}
}

func TestAppendReplacesTheLogFromTheFirstNewEntryOn(t *testing.T) {
	s := started(t, vfs.NewMem(), "data")
	write(t, s, 2, 2, 5)
	if err := s.Append(testGroup, []*raftpb.Message{
		appendMsg(hard(3, 2, 3), entries(3, 4, 4)),
		appendMsg(nil, entries(3, 5, 6)),
		appendMsg(hard(3, 2, 4), nil),
	}); err != nil {
		t.Fatal(err)
	}
	wantRecovered(t, s, "term 3 vote 2 commit 4, snapshot 1/1 (empty) 2/2 2/3 3/4 3/5 3/6")
}

func TestARestartKeepsTheInstanceAndTheLog(t *testing.T) {
	dir := t.TempDir() + "/data"
	s := started(t, vfs.Default, dir)
	write(t, s, 2, 2, 4)
	id := s.InstanceID()
	if id == (InstanceID{}) {
		t.Error("no instance id was drawn")
	}
	closeStore(t, s)

	s = open(t, vfs.Default, dir)
	if s.InstanceID() != id {
		t.Errorf("instance %v, was %v", s.InstanceID(), id)
	}
	wantRecovered(t, s, "term 2 vote 1 commit 4, snapshot 1/1 (empty) 2/2 2/3 2/4")
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v, want 0700", info.Mode(), err)
	}
}

func TestAnOrderlyRestartDropsNothingOfTheLog(t *testing.T) {
	fs := vfs.NewMem()
	s := started(t, fs, "data")
	for i := uint64(2); i < 8; i++ {
		write(t, s, 2, i, i)
		closeStore(t, s)
		var log records
		var err error
		if s, err = Open(Config{Dir: "data", FS: fs, ClusterID: testCluster, NodeID: testNode, Logger: log.logger()}); err != nil {
			t.Fatal(err)
		}
		recovered(t, s)
		if strings.Contains(log.String(), "dropped") {
			t.Fatalf("after an orderly restart: %s", log.String())
		}
	}
	closeStore(t, s)
}

func TestAnIncompleteRecordIsToldApart(t *testing.T) {
	head := func(n uint32) []byte {
		return binary.LittleEndian.AppendUint32([]byte{9, 9, 9, 9, 0, 2, walChunkFirst}, n)
	}
	zeros := make([]byte, 100)
	for what, tt := range map[string]struct {
		rest []byte
		torn bool
	}{
		"nothing":                          {nil, false},
		"zeros in advance":                 {zeros, false},
		"the trailer of a closed log":      {append([]byte{0, 0, 0, 0, 0, 0, 5}, 8, 0, 0, 0), false},
		"a trailer with zeros in advance":  {append([]byte{0, 0, 0, 0, 0, 0, 5, 8, 0, 0, 0}, zeros...), false},
		"what an older log left":           {append(head(3), zeros...), false},
		"a head and no content":            {append(head(7), zeros...), true},
		"a part of a head":                 {head(7)[:6], true},
		"a part of a head, zeros after it": {append(head(7)[:6], zeros...), true},
		"a head at the end of the file":    {head(7), true},
	} {
		if got := tornBytes(tt.rest, 7) > 0; got != tt.torn {
			t.Errorf("%s: torn %v", what, got)
		}
	}
}

func TestInstancesOfOtherNodesAreRemembered(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, "data")
	if err := s.RememberInstance(7, InstanceID{1, 2}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = open(t, fs, "data")
	if id, ok, err := s.KnownInstance(7); err != nil || !ok || id != (InstanceID{1, 2}) {
		t.Errorf("node 7: %v %v %v", id, ok, err)
	}
	if _, ok, err := s.KnownInstance(8); err != nil || ok {
		t.Errorf("node 8 is known: %v", err)
	}
}

func TestAGapIsAProgrammersError(t *testing.T) {
	s := started(t, vfs.NewMem(), "data")
	defer func() {
		if recover() == nil {
			t.Error("an entry behind a gap was taken")
		}
	}()
	write(t, s, 2, 3, 3)
}

// records collects what is logged.
type records struct{ bytes.Buffer }

func (r *records) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&r.Buffer, &slog.HandlerOptions{Level: slog.LevelInfo}))
}
