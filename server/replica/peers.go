package replica

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockstep-dev/lockstep/server/lead"
)

// A peerView is what a leader knows about a peer's log.
type peerView struct {
	acked  uint64 // the peer's log is durable up to here, in this term
	commit uint64 // the highest commit index sent to it

	match uint64 // Raft's value when last looked at
	// moved is when, on the clock awake, match last rose or nothing committed was missing; zero:
	// never looked.
	moved lead.Time
}

// views has the views of all peers, in one term.
type views struct {
	term uint64 // zero: this replica does not lead
	of   map[uint64]*peerView
}

func newViews(term uint64) views { return views{term: term, of: make(map[uint64]*peerView)} }

// viewOf finds the view of a peer; there are as many as members.
func (s *views) viewOf(id uint64) *peerView {
	v, ok := s.of[id]
	if !ok {
		v = &peerView{}
		s.of[id] = v
	}
	return v
}

// hear records what a peer acknowledges.
func (s *views) hear(m *raftpb.Message) {
	if s.term != 0 && m.GetType() == raftpb.MsgAppResp && m.GetTerm() == s.term && !m.GetReject() {
		v := s.viewOf(m.GetFrom())
		v.acked = max(v.acked, m.GetIndex())
	}
}

// redundant reports whether a message tells a peer only that more of what it already has is
// committed. The peer need not know at once: the next entry says so too, and so does the next
// heartbeat. Sending it each time would double the messages of a grant and the wake-ups of all
// processes.
func (s *views) redundant(m *raftpb.Message) bool {
	if s.term == 0 || m.GetType() != raftpb.MsgApp && m.GetType() != raftpb.MsgHeartbeat {
		return false
	}
	v := s.viewOf(m.GetTo())
	news := m.GetCommit() > v.commit
	if m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0 && m.GetIndex() <= v.acked && news {
		return true
	}
	v.commit = max(v.commit, m.GetCommit())
	return false
}

// watch records which peers make progress.
func (s *views) watch(c *core) {
	if s.term == 0 {
		return
	}
	c.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if v := s.viewOf(id); pr.Match > v.match || pr.Match >= c.committed || v.moved == 0 {
			v.match, v.moved = pr.Match, c.awake
		}
	})
}

// stuck returns how long a peer has made no progress although it lacks committed entries. Pauses of
// this process do not count.
func (s *views) stuck(id, match uint64, c *core) time.Duration {
	v, ok := s.of[id]
	if !ok || v.moved == 0 || match > v.match || match >= c.committed {
		return 0
	}
	return time.Duration(c.awake - v.moved)
}
