package replica

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A write is one MsgStorageAppend on its way to the disk.
type write struct {
	meta  *raftpb.SnapshotMetadata // of the snapshot in it, or nil
	since lead.Time                // on the clock awake
	last  uint64                   // index of the log's last entry once it is durable
	// elsewhere is when, on the clock awake, everything up to last was committed; zero: not yet.
	elsewhere lead.Time
	snapshot  *machine.Machine  // the state to swap in when it is durable, or nil
	responses []*raftpb.Message // due when it is durable
}

// writes has what is on its way to the disk, and what need not go there on its own.
type writes struct {
	flying []write // handed out and not reported durable, oldest first
	// term and vote are the last ones handed out.
	term, vote uint64
	// commit is a commit index that has not been handed out yet, or zero.
	commit uint64
}

// store handles a MsgStorageAppend from Raft. One without entries, snapshot, new term or new vote
// has nothing to make durable: a commit index alone may be lost. It goes to the disk with the next
// write, and its responses wait for the writes before it. That spares each entry a second wake-up
// of the disk on every replica.
func (r *Replica) store(m *raftpb.Message) {
	s := &r.writes
	changed := m.Term != nil && (m.GetTerm() != s.term || m.GetVote() != s.vote)
	if len(m.GetEntries()) > 0 || !raft.IsEmptySnap(m.GetSnapshot()) || changed {
		r.write(m)
		return
	}
	if m.Term != nil {
		s.commit = m.GetCommit()
	}
	if n := len(s.flying); n > 0 {
		s.flying[n-1].responses = append(s.flying[n-1].responses, m.GetResponses()...)
		return
	}
	r.respond(m.GetResponses())
}

// write hands out a MsgStorageAppend. The log in memory gets its entries now, not when they are
// durable: Raft reads from there only what lies before its own unstable part, and it truncates that
// part only on answers to the newest writes. So what it reads is what the disk will hold once all
// writes in flight are done, as required.
func (r *Replica) write(m *raftpb.Message) {
	m = r.writes.complete(m)
	w := write{since: r.awake, responses: slices.Clip(m.GetResponses())}
	if snap := m.GetSnapshot(); !raft.IsEmptySnap(snap) {
		w.meta, w.snapshot = snap.GetMetadata(), r.takeIncoming(snap.GetMetadata().GetIndex())
		if r.level() < command.SecretLevel && w.snapshot.Limits().FeatureLevel >= command.SecretLevel {
			r.out.Forget = ForgetLater // after a crash before install, nothing else would show that the level rose here
		}
		if err := r.disk.ApplySnapshot(snap); err != nil {
			panic(fmt.Sprintf("replica: snapshot %d: %v", snap.GetMetadata().GetIndex(), err))
		}
	}
	if err := r.disk.Append(m.GetEntries()); err != nil {
		panic(fmt.Sprintf("replica: appending %d entries: %v", len(m.GetEntries()), err))
	}
	w.last, _ = r.disk.LastIndex() // never returns an error
	r.out.Appends = append(r.out.Appends, m)
	if mutantSync {
		r.finish(w)
		w = write{since: w.since}
	}
	r.writes.flying = append(r.writes.flying, w)
}

// complete adds the commit index that was held back to a message that is handed out.
func (s *writes) complete(m *raftpb.Message) *raftpb.Message {
	if m.Term != nil {
		s.term, s.vote, s.commit = m.GetTerm(), m.GetVote(), 0
		return m
	}
	if s.commit == 0 {
		return m
	}
	full := &raftpb.Message{
		Type: m.Type, To: m.To, From: m.From, Entries: m.Entries, Snapshot: m.Snapshot, Responses: m.Responses,
		Term: new(s.term), Vote: new(s.vote), Commit: new(s.commit),
	}
	s.commit = 0
	return full
}

// persisted delivers the responses of the oldest n writes: only now may votes and acknowledgements
// that depend on them go out.
func (r *Replica) persisted(n int) {
	s := &r.writes
	if n > len(s.flying) {
		panic(fmt.Sprintf("replica: %d writes reported durable, %d in flight", n, len(s.flying)))
	}
	done := s.flying[:n]
	s.flying = append([]write(nil), s.flying[n:]...)
	for _, w := range done {
		r.finish(w)
	}
}

func (r *Replica) finish(w write) {
	if w.snapshot != nil {
		r.install(w.meta, w.snapshot)
	}
	r.respond(w.responses)
}

func (r *Replica) respond(messages []*raftpb.Message) {
	for _, m := range messages {
		if m.GetTo() == r.cfg.ID {
			r.step(m)
		} else {
			r.send(m)
		}
	}
}
