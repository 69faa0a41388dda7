package storage

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"
)

// TestACrashKeepsAllThatWasAppended writes at random, cuts the power at random points, keeps a
// random part of what was not synced, and compares with a model.
func TestACrashKeepsAllThatWasAppended(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := vfs.NewCrashableMem()
		// terms[i] is entry i's; 0 is not used, 1 the base.
		m := model{term: 1, terms: []uint64{1, 1}}
		s := openRapid(rt, fs)
		if err := s.Bootstrap(testGroup, conf(1, 2, 3)); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0:
				kept := rapid.SampledFrom([]int{0, 30, 100}).Draw(rt, "kept")
				seed := rapid.Uint64().Draw(rt, "seed")
				clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rand.New(rand.NewPCG(seed, 1))})
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				fs = clone
				s = openRapid(rt, fs)
				m.check(rt, s)
			case 1:
				m.snapshot(rt, s)
			default:
				m.write(rt, s)
			}
		}
		if err := s.Close(); err != nil {
			rt.Fatal(err)
		}
	})
}

func openRapid(t *rapid.T, fs vfs.FS) *Store {
	s, err := Open(Config{Dir: "data", FS: fs, ClusterID: testCluster, NodeID: testNode})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A model is what a log has to hold.
type model struct {
	term   uint64
	terms  []uint64
	commit uint64 // a lower bound: it may be lost if it came alone
	snaps  []uint64
}

func (m *model) last() uint64 { return uint64(len(m.terms) - 1) }

func (m *model) write(t *rapid.T, s *Store) {
	var msgs []*raftpb.Message
	for range rapid.IntRange(1, 3).Draw(t, "messages") {
		if rapid.Bool().Draw(t, "new term") {
			m.term++
		}
		first := rapid.Uint64Range(max(2, m.commit+1), m.last()+1).Draw(t, "first")
		n := rapid.Uint64Range(0, 3).Draw(t, "entries")
		if first <= m.last() && n == 0 {
			n = 1
		}
		var es []*raftpb.Entry
		if n > 0 {
			es = entries(m.term, first, first+n-1)
			m.terms = m.terms[:first]
			for range n {
				m.terms = append(m.terms, m.term)
			}
			m.commit = max(m.commit, rapid.Uint64Range(m.commit, m.last()).Draw(t, "commit"))
		}
		msgs = append(msgs, appendMsg(hard(m.term, 1, m.commit), es))
	}
	if err := s.Append(testGroup, msgs); err != nil {
		t.Fatal(err)
	}
}

// snapshot makes one of the newest committed entry, and deletes log as a replica would.
func (m *model) snapshot(t *rapid.T, s *Store) {
	if m.commit < 2 || len(m.snaps) > 0 && m.snaps[len(m.snaps)-1] >= m.commit {
		return
	}
	meta := &raftpb.SnapshotMetadata{Index: new(m.commit), Term: new(m.terms[m.commit]), ConfState: conf(1, 2, 3)}
	w, err := s.CreateSnapshot(testGroup, meta)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	m.snaps = append(m.snaps, m.commit)
	if err := s.Compact(testGroup, m.commit); err != nil {
		t.Fatal(err)
	}
}

func (m *model) check(t *rapid.T, s *Store) {
	r, err := s.Recover(testGroup)
	if err != nil {
		t.Fatal(err)
	}
	base := r.Snapshot.GetIndex()
	want := uint64(1)
	if len(m.snaps) > 0 {
		want = m.snaps[len(m.snaps)-1]
	}
	if base != want || base+uint64(len(r.Entries)) != m.last() || r.HardState.GetTerm() != m.term {
		t.Fatalf("recovered %s; want a snapshot at %d, last entry %d, term %d", describe(r), want, m.last(), m.term)
	}
	for _, e := range r.Entries {
		if e.GetTerm() != m.terms[e.GetIndex()] {
			t.Fatalf("entry %d has term %d, want %d", e.GetIndex(), e.GetTerm(), m.terms[e.GetIndex()])
		}
	}
}

// TestAVoteAloneIsSynced: a node that forgets its vote in a power cut votes twice in one term. Such
// a write has no entries and no new term.
func TestAVoteAloneIsSynced(t *testing.T) {
	for _, changed := range []struct {
		what string
		hard *raftpb.HardState
	}{
		{"a vote in the same term", hard(2, 3, 1)},
		{"a term without a vote", hard(3, 0, 1)},
	} {
		fs := vfs.NewCrashableMem()
		s := started(t, fs, "data")
		if err := s.Append(testGroup, []*raftpb.Message{appendMsg(hard(2, 0, 1), nil)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(testGroup, []*raftpb.Message{appendMsg(changed.hard, nil)}); err != nil {
			t.Fatal(err)
		}
		after := open(t, fs.CrashClone(vfs.CrashCloneCfg{}), "data")
		got := recovered(t, after).HardState
		if got.GetTerm() != changed.hard.GetTerm() || got.GetVote() != changed.hard.GetVote() {
			t.Errorf("%s: after the power cut: term %d, vote %d", changed.what, got.GetTerm(), got.GetVote())
		}
	}
}

// TestACrashWhileTheDirectoryIsMadeIsNoDamage stops the creation after every write in turn.
func TestACrashWhileTheDirectoryIsMadeIsNoDamage(t *testing.T) {
	for n := 0; ; n++ {
		mem := vfs.NewCrashableMem()
		var mu sync.Mutex // Pebble has its own goroutines
		left := n
		var crashed *vfs.MemFS
		stop := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if left--; left < 0 && crashed == nil {
				crashed = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(uint64(n), 2))})
			}
			return nil
		})
		s, err := Open(Config{Dir: "data", FS: errorfs.Wrap(mem, stop), ClusterID: testCluster, NodeID: testNode})
		if err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		if crashed == nil {
			t.Logf("%d points", n)
			return
		}
		s, err = Open(Config{Dir: "data", FS: crashed, ClusterID: testCluster, NodeID: testNode})
		if err != nil {
			t.Fatalf("stopped after %d writes: %v", n, err)
		}
		wantRecovered(t, s, "nothing")
		closeStore(t, s)
	}
}

// TestAFailedSyncIsFinal: no retry, no further write, and the failure is reported.
func TestAFailedSyncIsFinal(t *testing.T) {
	for _, op := range []errorfs.OpKind{errorfs.OpFileSyncData, errorfs.OpFileWrite} {
		var armed atomic.Bool
		var hits atomic.Int32
		fail := errorfs.InjectorFunc(func(o errorfs.Op) error {
			if !armed.Load() || !strings.HasSuffix(o.Path, ".log") || o.Kind != op {
				return nil
			}
			hits.Add(1)
			return errorfs.ErrInjected
		})
		mem := vfs.NewCrashableMem()
		s := started(t, errorfs.Wrap(mem, fail), "data")
		write(t, s, 2, 2, 3)
		armed.Store(true)
		msg := []*raftpb.Message{appendMsg(hard(2, 1, 3), entries(2, 4, 4))}
		err := s.Append(testGroup, msg)
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("op %v: err = %v", op, err)
		}
		armed.Store(false)
		before := hits.Load()
		if again := s.Append(testGroup, msg); again == nil || hits.Load() != before {
			t.Errorf("op %v: after the failure: %v", op, again)
		}
		if err := s.Compact(testGroup, 2); err == nil {
			t.Errorf("op %v: compaction went on", op)
		}
		select {
		case <-s.Failed():
		default:
			t.Errorf("op %v: not told", op)
		}
		closeStore(t, s)
		endPebble(s)

		s = open(t, mem.CrashClone(vfs.CrashCloneCfg{}), "data")
		if got := describe(recovered(t, s)); !strings.Contains(got, "2/2 2/3") {
			t.Errorf("op %v: after the restart: %s", op, got)
		}
	}
}

// TestAFullDiskIsFinalAndLosesNothing runs out of space when Pebble needs its next write-ahead log.
func TestAFullDiskIsFinalAndLosesNothing(t *testing.T) {
	if !inOwnProcess(t) { // the write does not return
		return
	}
	var full atomic.Bool
	noSpace := errorfs.InjectorFunc(func(op errorfs.Op) error {
		made := op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite
		if full.Load() && made && strings.HasSuffix(op.Path, ".log") {
			return syscall.ENOSPC
		}
		return nil
	})
	mem := vfs.NewCrashableMem()
	s := started(t, errorfs.Wrap(mem, noSpace), "data")
	full.Store(true)
	var acknowledged atomic.Uint64
	go func() {
		for i := uint64(2); ; i++ {
			es := entries(2, i, i)
			es[0].Data = make([]byte, 100<<10)
			if s.Append(testGroup, []*raftpb.Message{appendMsg(hard(2, 1, 1), es)}) != nil {
				return
			}
			acknowledged.Store(i)
		}
	}()
	<-s.Failed()
	if err := s.Err(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("err = %v", err)
	}
	s = open(t, mem.CrashClone(vfs.CrashCloneCfg{}), "data")
	if got := uint64(len(recovered(t, s).Entries)) + 1; got < acknowledged.Load() {
		t.Errorf("%d entries came back, %d were acknowledged", got, acknowledged.Load())
	}
}

// endPebble ends the goroutines that a failed store leaves until its process exits.
func endPebble(s *Store) {
	defer func() { _ = recover() }()
	_ = s.db.Close()
	_ = s.slow.Close()
}
