package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// snapshotWritten records a durable snapshot: the log before it is no longer needed, except for a
// tail in memory for followers that lag.
func (r *Replica) snapshotWritten(index uint64) {
	s := &r.snaps
	if s.meta.GetIndex() != index {
		return // abandoned, or overtaken by one that a leader sent
	}
	meta := s.meta
	s.meta, s.capture, s.index = nil, nil, index
	if s.payOff(index) {
		r.out.Forget = ForgetNow
	}
	r.disk.asked, r.disk.lost = false, 0 // if yet another one is needed, it is asked for again
	_, err := r.disk.CreateSnapshot(index, meta.GetConfState(), nil)
	if errors.Is(err, raft.ErrSnapOutOfDate) {
		return
	}
	if err != nil {
		panic(fmt.Sprintf("replica: snapshot %d: %v", index, err))
	}
	if err := r.disk.Compact(s.tailStart(index, r.members.neededAfter())); err != nil && !errors.Is(err, raft.ErrCompacted) {
		panic(fmt.Sprintf("replica: compacting to %d: %v", index, err))
	}
	r.out.CompactTo = index
}

// takeIncoming returns the state of a snapshot that Raft accepted, and forgets older ones.
func (r *Replica) takeIncoming(index uint64) *machine.Machine {
	for _, in := range r.incoming {
		if in.Message.GetSnapshot().GetMetadata().GetIndex() == index {
			r.incoming = nil
			return in.Machine
		}
	}
	panic(fmt.Sprintf("replica: Raft accepted snapshot %d, whose state never came", index))
}

// install replaces the present state with the state of a snapshot that is now durable.
func (r *Replica) install(meta *raftpb.SnapshotMetadata, m *machine.Machine) {
	if meta.GetIndex() <= r.applied {
		panic(fmt.Sprintf("replica: snapshot %d to install after entry %d", meta.GetIndex(), r.applied))
	}
	r.log.Info("snapshot installed", "index", meta.GetIndex(), "previous", r.applied)
	r.machine.AbortCapture()
	before := r.machine.Limits().FeatureLevel
	r.machine, r.applied, r.confState = m, meta.GetIndex(), meta.GetConfState()
	r.lead.Installed(m, r.applied)
	owed := r.snaps.restart(r.applied)
	r.leaveIfRemoved()
	if owed {
		r.out.Forget = ForgetNow
	}
	r.risen(before)
}
