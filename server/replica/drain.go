package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-dev/lockstep/server/command"
)

// drain carries out everything that Raft has ready. Entries are applied on the way; what goes to
// peers, disk and clients is collected in r.out.
func (r *Replica) drain() {
	for r.raft.HasReady() {
		rd := r.raft.Ready()
		r.follow(&rd)
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				r.store(m)
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

// follow keeps role, term and leader in step with Raft. A leadership ends here, before anything
// else in the same Ready is looked at.
func (r *Replica) follow(rd *raft.Ready) {
	if !raft.IsEmptyHardState(rd.HardState) {
		r.term, r.committed = rd.HardState.GetTerm(), rd.HardState.GetCommit()
	}
	if rd.SoftState != nil {
		r.leader, r.role = rd.SoftState.Lead, roleOf(rd.SoftState.RaftState)
	}
	if led := r.lead.Term(); led != 0 && (r.role != Leader || r.term != led) {
		r.depose()
	}
	if r.role == Leader && r.lead.Term() == 0 {
		r.views = newViews(r.term)
		r.lead.Start(r.term)
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

// send hands out a message for a peer. A leader whose disk does not respond keeps silent, so that
// the others elect one whose disk does.
func (r *Replica) send(m *raftpb.Message) {
	switch {
	case m.GetType() == raftpb.MsgSnap:
		r.sendSnapshot(m)
	case m.GetType() == raftpb.MsgTimeoutNow:
		r.timeoutNow(m)
	case !r.muted() && !r.views.redundant(m):
		r.out.Messages = append(r.out.Messages, m)
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
	level := r.machine.Limits().FeatureLevel
	switch {
	case e.GetType() == raftpb.EntryConfChange:
		c := &raftpb.ConfChange{}
		r.applyConfChange(&done, e, c, c.GetContext)
	case e.GetType() == raftpb.EntryConfChangeV2:
		c := &raftpb.ConfChangeV2{}
		r.applyConfChange(&done, e, c, c.GetContext)
	case len(e.GetData()) > 0:
		entry, err := command.DecodeEntry(e.GetData())
		if err != nil {
			// It was written by a newer binary, or the log is damaged: going on without it would
			// fork the replicas.
			panic(fmt.Errorf("replica: entry %d of term %d: %w", index, term, err))
		}
		r.beforeRise(&entry)
		done.Entry, done.Output = &entry, r.machine.Apply(index, term, &entry)
		r.out.Events = append(r.out.Events, done.Output.Events...)
	}
	r.out.Applied = append(r.out.Applied, done)
	if r.lead.Apply(index, term, done.Entry, &done.Output) {
		r.promoted()
	}
	r.risen(level)
}

type confChange interface {
	proto.Message
	raftpb.ConfChangeI
}

// firstIndex is the index of the first entry of a log that begins with an empty machine, as a new
// member's does.
const firstIndex = 2

func (r *Replica) applyConfChange(done *Applied, e *raftpb.Entry, c confChange, context func() []byte) {
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		panic(fmt.Sprintf("replica: conf change at %d: %v", e.GetIndex(), err))
	}
	data := context()
	if len(data) == 0 || r.applyMembership(done, data) {
		r.confState = r.raft.ApplyConfChange(c)
	}
	if len(data) > 0 {
		r.afterMembership(done)
	}
}
