package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// A write is one MsgStorageAppend on its way to the disk.
type write struct {
	message  *raftpb.Message
	since    Time             // on the clock awake
	snapshot *machine.Machine // the state to swap in when it is durable, or nil
	answered bool             // only with a planted bug
}

// drain carries out what Raft has ready until nothing is left. Entries are applied on
// the way; what goes to peers, disk and clients is collected in r.out.
func (r *Replica) drain() {
	for r.raft.HasReady() {
		rd := r.raft.Ready()
		r.follow(&rd)
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				r.write(m)
			case raft.LocalApplyThread:
				r.applyAll(m)
			default:
				r.send(m)
			}
		}
		for _, state := range rd.ReadStates {
			r.confirm(state)
		}
	}
}

// follow keeps role, term and leader as Raft has them. A leadership ends here before
// anything else of the same Ready is looked at.
func (r *Replica) follow(rd *raft.Ready) {
	if !raft.IsEmptyHardState(rd.HardState) {
		r.term, r.committed = rd.HardState.GetTerm(), rd.HardState.GetCommit()
	}
	if rd.SoftState != nil {
		r.leader, r.role = rd.SoftState.Lead, roleOf(rd.SoftState.RaftState)
	}
	if r.lead.term != 0 && (r.role != Leader || r.term != r.lead.term) {
		r.depose()
	}
	if r.role == Leader && r.lead.term == 0 {
		r.lead = newLeadership(r.term)
		r.log.Info("leading", "term", r.term)
	}
}

func roleOf(s raft.StateType) Role {
	switch s {
	case raft.StateLeader:
		return Leader
	case raft.StateFollower:
		return Follower
	default:
		return Candidate
	}
}

// send hands a message out for a peer. A leader whose disk does not answer keeps silent,
// so that the others elect one whose does.
func (r *Replica) send(m *raftpb.Message) {
	if r.muted() {
		if m.GetType() == raftpb.MsgSnap {
			r.raft.ReportSnapshot(m.GetTo(), raft.SnapshotFailure)
		}
		return
	}
	r.out.Messages = append(r.out.Messages, m)
}

// write hands a MsgStorageAppend out. The log in memory takes its entries now, not when
// they are durable: Raft reads from there only what lies before its own unstable part, and that
// it cuts only by answers to the newest writes. So what it reads is what
// the disk will hold once all writes in flight are done, as it has to be.
func (r *Replica) write(m *raftpb.Message) {
	w := write{message: m, since: r.awake}
	if snap := m.GetSnapshot(); !raft.IsEmptySnap(snap) {
		w.snapshot = r.takeIncoming(snap.GetMetadata().GetIndex())
		if err := r.disk.ApplySnapshot(snap); err != nil {
			panic(fmt.Sprintf("replica: snapshot %d: %v", snap.GetMetadata().GetIndex(), err))
		}
	}
	if err := r.disk.Append(m.GetEntries()); err != nil {
		panic(fmt.Sprintf("replica: appending %d entries: %v", len(m.GetEntries()), err))
	}
	r.out.Appends = append(r.out.Appends, m)
	if mutantSync {
		w.answered = true
		r.writes = append(r.writes, w)
		r.answerWrite(&w)
		return
	}
	r.writes = append(r.writes, w)
}

// persisted delivers the responses of the oldest n writes: only now may votes and
// acknowledgements that rest on them go out.
func (r *Replica) persisted(n int) {
	if n > len(r.writes) {
		panic(fmt.Sprintf("replica: %d writes reported durable, %d in flight", n, len(r.writes)))
	}
	for _, w := range r.writes[:n] {
		if !w.answered {
			r.answerWrite(&w)
		}
	}
	r.writes = append(r.writes[:0], r.writes[n:]...)
}

func (r *Replica) answerWrite(w *write) {
	if w.snapshot != nil {
		r.install(w.message.GetSnapshot().GetMetadata(), w.snapshot)
	}
	for _, m := range w.message.GetResponses() {
		if m.GetTo() == r.cfg.ID {
			r.step(m)
		} else {
			r.send(m)
		}
	}
}

func (r *Replica) applyAll(m *raftpb.Message) {
	for _, e := range m.GetEntries() {
		r.apply(e)
	}
	for _, response := range m.GetResponses() {
		r.step(response)
	}
}

// apply applies one committed entry.
func (r *Replica) apply(e *raftpb.Entry) {
	index, term := e.GetIndex(), e.GetTerm()
	if index != r.applied+1 {
		panic(fmt.Sprintf("replica: entry %d to apply after %d", index, r.applied))
	}
	r.applied = index
	r.snaps.grown += uint64(len(e.GetData()))
	done := Applied{Index: index, Term: term}
	switch {
	case e.GetType() == raftpb.EntryConfChange:
		r.applyConfChange(e, &raftpb.ConfChange{})
	case e.GetType() == raftpb.EntryConfChangeV2:
		r.applyConfChange(e, &raftpb.ConfChangeV2{})
	case len(e.GetData()) > 0:
		entry, err := machine.DecodeEntry(e.GetData())
		if err != nil {
			// It was written by a newer binary, or the log is damaged: going on
			// without it would fork the replicas.
			panic(fmt.Sprintf("replica: entry %d of term %d: %v", index, term, err))
		}
		done.Entry, done.Output = &entry, r.machine.Apply(index, term, &entry)
		r.out.Events = append(r.out.Events, done.Output.Events...)
	}
	r.out.Applied = append(r.out.Applied, done)
	if r.lead.term == term && !r.lead.serving {
		r.promote()
	}
	if done.Entry != nil && r.lead.serving {
		r.deliver(&done)
	}
}

type confChange interface {
	proto.Message
	raftpb.ConfChangeI
}

func (r *Replica) applyConfChange(e *raftpb.Entry, c confChange) {
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		panic(fmt.Sprintf("replica: conf change at %d: %v", e.GetIndex(), err))
	}
	r.confState = r.raft.ApplyConfChange(c)
}
