package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A raftStorage is the log in memory, as Raft reads it. It gives Raft only snapshots that can be
// sent, and records when Raft asks for one that does not exist: the replica then makes it.
type raftStorage struct {
	*raft.MemoryStorage
	asked bool   // a snapshot is needed that does not exist
	lost  uint64 // index of a snapshot whose file is gone or damaged; 0: none
}

func newRaftStorage() *raftStorage { return &raftStorage{MemoryStorage: raft.NewMemoryStorage()} }

// Snapshot returns the newest snapshot, if it can be sent.
func (s *raftStorage) Snapshot() (*raftpb.Snapshot, error) {
	snap, err := s.MemoryStorage.Snapshot()
	if err == nil && !s.sendable(snap.GetMetadata().GetIndex()) {
		s.asked = true
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return snap, err
}

// sendable reports whether the snapshot at index has a file. The empty machine, from which all
// nodes begin, has none.
func (s *raftStorage) sendable(index uint64) bool { return index >= firstIndex && index != s.lost }

// sendSnapshot hands out a MsgSnap if the snapshot includes the member that it goes to: otherwise
// Raft refuses it there. A new member needs a snapshot that is younger than its membership.
func (r *Replica) sendSnapshot(m *raftpb.Message) {
	if r.muted() || !names(m.GetSnapshot().GetMetadata().GetConfState(), m.GetTo()) {
		r.disk.asked = r.disk.asked || !r.muted()
		r.raft.ReportSnapshot(m.GetTo(), raft.SnapshotFailure)
		return
	}
	r.out.Messages = append(r.out.Messages, m)
}

func names(c *raftpb.ConfState, id uint64) bool {
	return slices.Contains(c.GetVoters(), id) || slices.Contains(c.GetLearners(), id) ||
		slices.Contains(c.GetVotersOutgoing(), id) || slices.Contains(c.GetLearnersNext(), id)
}

// snapshotSent reports to Raft how a MsgSnap ended. A snapshot whose file cannot be read is
// useless.
func (r *Replica) snapshotSent(in SnapshotSent) {
	status := raft.SnapshotFinish
	if !in.OK {
		status = raft.SnapshotFailure
	}
	if in.Unreadable != 0 && in.Unreadable == r.snaps.index {
		r.log.Warn("cannot read the snapshot: creating another one", "index", in.Unreadable)
		r.disk.lost = in.Unreadable
	}
	r.raft.ReportSnapshot(in.To, status)
}

// empty reports whether a message is the answer to a leader of an older term: an MsgAppResp that
// acknowledges nothing and refuses nothing. In our own term, Raft would take it for an
// acknowledgement of index 0, where none of our logs begins, and send the whole state.
func (r *Replica) empty(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgAppResp && m.GetIndex() == 0 && !m.GetReject() &&
		m.GetTerm() <= r.raft.BasicStatus().GetTerm()
}
