package replica

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A peerView is what a leader knows about a peer's log.
type peerView struct {
	acked  uint64 // the peer's log is durable up to here, in this term
	commit uint64 // the highest commit index sent to it

	match uint64 // Raft's value when last looked at
	// moved is when, on the clock awake, match last rose or nothing committed was missing; zero:
	// never looked.
	moved Time
}

// viewOf finds the view of a peer; there are as many as members.
func (l *leadership) viewOf(id uint64) *peerView {
	v, ok := l.views[id]
	if !ok {
		v = &peerView{}
		l.views[id] = v
	}
	return v
}

// hear records what a peer acknowledges.
func (l *leadership) hear(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgAppResp && m.GetTerm() == l.term && !m.GetReject() {
		v := l.viewOf(m.GetFrom())
		v.acked = max(v.acked, m.GetIndex())
	}
}

// redundant reports whether a message tells a peer only that more of what it already has is
// committed. The peer need not know at once: the next entry says so too, and so does the next
// heartbeat. Sending it each time would double the messages of a grant and the wake-ups of all
// processes.
func (l *leadership) redundant(m *raftpb.Message) bool {
	if l.term == 0 || m.GetType() != raftpb.MsgApp && m.GetType() != raftpb.MsgHeartbeat {
		return false
	}
	v := l.viewOf(m.GetTo())
	news := m.GetCommit() > v.commit
	if m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0 && m.GetIndex() <= v.acked && news {
		return true
	}
	v.commit = max(v.commit, m.GetCommit())
	return false
}

// watchPeers records which peers make progress.
func (r *Replica) watchPeers() {
	if r.lead.term == 0 {
		return
	}
	r.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if v := r.lead.viewOf(id); pr.Match > v.match || pr.Match >= r.committed || v.moved == 0 {
			v.match, v.moved = pr.Match, r.awake
		}
	})
}

// stuck returns how long a peer has made no progress although it lacks committed entries. Pauses of
// this process do not count.
func (r *Replica) stuck(id, match uint64) time.Duration {
	v, ok := r.lead.views[id]
	if !ok || v.moved == 0 || match > v.match || match >= r.committed {
		return 0
	}
	return time.Duration(r.awake - v.moved)
}
