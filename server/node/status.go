package node

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// A Status is how a node sees itself and its cluster.
type Status struct {
	// ClusterID tells this cluster from every other: its birth in hexadecimal digits, or for one that began at a feature level
	// without births the id of its configuration. Empty until the node knows.
	ClusterID string
	ID        uint64
	Name      string
	Role      Role
	Term      uint64
	Leader    uint64 // 0: none known

	LeaderName          string
	LeaderClientAddress string // "": not known

	Serving bool   // leads and has applied an entry of its own term
	Commit  uint64 // index of the log
	Applied uint64
	Counts  machine.Counts
	// Level is the cluster's feature level as far as this node has applied the log; 0 while Starting.
	Level   uint32
	Members []MemberStatus // by name
	// Replica is the replica's own view; zero while Starting.
	Replica replica.Status
	// Waiting says why this node takes no part, if it does not: it has a fresh directory and waits for the other initial
	// members, or so many members and it refuse each other that the rest is no majority.
	Waiting string
	// DiskBusy is how long the write under way takes already; 0 when none is.
	DiskBusy time.Duration
	// LeaderChanges counts how often this node has learned of another leader since it started.
	LeaderChanges uint64
	// Snapshots counts them since the node started.
	Snapshots SnapshotCounts
	// Disproportionate counts the messages of peers that were dropped since the node started; see [replica.OutOfProportion].
	Disproportionate uint64
	// Refusals counts the handshakes with peers that have failed since the node started.
	Refusals transport.Refusals
	// DescriptorWaits counts how often a file could not be opened at once for want of a file descriptor, since the node started.
	DescriptorWaits uint64
	// Streams are the clients' streams and calls under way.
	Streams int
	// Age is how old the replica's view is. Far above 50 ms, the loop hangs. Zero while Starting.
	Age time.Duration
}

// SnapshotCounts are the snapshots of a node since it started.
type SnapshotCounts struct{ Written, Sent, Received, Failed uint64 }

// counts are what a Status counts.
type counts struct {
	leaders, written, sent, received, failed, disproportionate, waited atomic.Uint64

	refused transport.RefusalCounter
}

func (c *counts) snapshots() SnapshotCounts {
	return SnapshotCounts{c.written.Load(), c.sent.Load(), c.received.Load(), c.failed.Load()}
}

// A Role is what a node is in its group.
type Role uint8

// The roles. Starting means that the directory is read or peers are asked.
const (
	Starting Role = iota
	Follower
	Candidate
	Leader
)

func (r Role) String() string {
	return [...]string{"starting", "follower", "candidate", "leader"}[r]
}

// A MemberStatus is one member as this node sees it.
type MemberStatus struct {
	ID            uint64
	Name          string
	PeerAddress   string
	ClientAddress string // "": not known yet
	Leader        bool
	Learner       bool // has no vote yet
	Self          bool
	Reachable     bool   // always true for the node itself
	Problem       string // why not
	// Level is the newest feature level that the member's build can apply; 0: it has not been met since this node started.
	Level   uint32
	Zone    string // where it says that it is; "": it does not, or has not been met
	Applied uint64 // own applied index, or on the leader the index known to be durable there; else 0
	// Stuck, on the leader, is how long the member has got nothing of the committed entries that it lacks; see
	// [replica.Peer]. Else 0.
	Stuck time.Duration
}

// publish makes the replica's present status visible. The loop calls it.
func (n *Node) publish() {
	s := n.replica.Status()
	n.status.Store(&s)
	n.published.Store(int64(n.Now()))
	n.refreshPeers(&s)
}

// publishMarks shows by what the replica's present state can be compared. The loop calls it after a turn: what peers told before
// is not compared with the state of a snapshot alone.
func (n *Node) publishMarks() {
	if now := n.Now(); n.marks.Load() == nil || now-n.marked > replica.Time(markEvery) {
		n.marked = now
		marks := n.replica.Marks()
		n.marks.Store(&marks)
		n.compareTold()
	}
}

// markEvery is how old the marks may get that handshakes tell. They never become wrong.
const markEvery = time.Second

// Status tells how the node is. It is at most some 50 ms old.
func (n *Node) Status() Status {
	s := Status{ClusterID: n.clusterID(), Waiting: n.waiting(), ID: n.id.Load(), Name: n.cfg.Name, Members: slices.Clone(n.members), DiskBusy: n.busy.busy()}
	s.LeaderChanges, s.Snapshots, s.Streams = n.counts.leaders.Load(), n.counts.snapshots(), n.streams.len()
	s.Disproportionate = n.counts.disproportionate.Load()
	s.Refusals = n.counts.refused.Read()
	s.DescriptorWaits = n.counts.waited.Load()
	r := n.status.Load()
	if r == nil {
		return s
	}
	s.Replica = *r
	s.Disproportionate += r.Disproportionate
	s.Age = time.Duration(int64(n.Now()) - n.published.Load())
	s.Role = Role(r.Role) + Follower
	s.Term, s.Leader, s.Serving = r.Term, r.Leader, r.Serving
	s.Members, s.Level = n.present(r), r.Level
	met := n.met()
	s.Commit, s.Applied, s.Counts = r.Committed, r.Applied, r.Counts
	peers := n.peerStatus()
	for i := range s.Members {
		m := &s.Members[i]
		m.Leader, m.Level, m.Zone = m.ID == r.Leader, met[m.ID].Level, met[m.ID].Zone
		if m.Self {
			m.Applied = r.Applied
		} else if p, ok := peers[m.ID]; ok {
			m.ClientAddress, m.Reachable, m.Problem = p.ClientAddress, p.Reachable, p.Problem
		}
		if k := slices.IndexFunc(r.Peers, func(p replica.Peer) bool { return p.ID == m.ID }); k >= 0 && !m.Self {
			m.Applied, m.Stuck = r.Peers[k].Match, r.Peers[k].Stuck
		}
		if m.Leader {
			s.LeaderName, s.LeaderClientAddress = m.Name, m.ClientAddress
		}
	}
	return s
}

// met is what this node and those that it has met tell of themselves. Their levels are those that their builds can apply.
func (n *Node) met() map[uint64]replica.Met {
	all := map[uint64]replica.Met{n.id.Load(): {Level: machine.FeatureLevel, Zone: n.cfg.Zone}}
	n.door.seen.Lock()
	defer n.door.seen.Unlock()
	for id, m := range n.door.seen.met {
		m.Level = max(m.Level, 1) // the builds that do not tell
		all[id] = m
	}
	return all
}

func (n *Node) peerStatus() map[uint64]transport.PeerStatus {
	all := make(map[uint64]transport.PeerStatus)
	for _, p := range n.transport.Peers() {
		all[p.Node] = p
	}
	return all
}
