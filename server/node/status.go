package node

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// A Status describes a node and its cluster as the node sees them.
type Status struct {
	// ClusterID distinguishes this cluster from every other: its birth in hexadecimal digits or, if
	// it began at a feature level without births, the id of its configuration. Empty until the node
	// knows.
	ClusterID string
	ID        uint64
	Name      string
	Role      Role
	Term      uint64
	Leader    uint64 // 0: not known

	LeaderName          string
	LeaderClientAddress string // "": not known

	Serving bool   // leads and has applied an entry of its own term
	Commit  uint64 // log index
	Applied uint64
	Counts  machine.Counts
	// Level is the cluster's feature level as far as this node has applied the log; 0 while
	// Starting.
	Level   uint32
	Members []MemberStatus // by name
	// Replica is the replica's own view; zero while Starting.
	Replica replica.Status
	// Waiting says why this node takes no part, if so: it has a fresh directory and waits for the
	// other initial members, or it and so many members refuse each other that the rest is not a
	// majority.
	Waiting string
	// DiskBusy is how long the write in progress has taken so far; 0 if there is none.
	DiskBusy time.Duration
	// LeaderChanges counts how often this node has learned of a new leader since it started.
	LeaderChanges uint64
	// Snapshots are counted since the node started.
	Snapshots SnapshotCounts
	// Disproportionate counts the peers' messages dropped since the node started; see
	// [replica.OutOfProportion].
	Disproportionate uint64
	// Refusals counts the handshakes with peers that have failed since the node started.
	Refusals transport.Refusals
	// DescriptorWaits counts how often opening a file had to wait for a free file descriptor since
	// the node started.
	DescriptorWaits uint64
	// Streams is the number of open client streams and calls.
	Streams int
	// Age is how old the replica's view is. If it is far above 50 ms, the loop hangs. Zero while
	// Starting.
	Age time.Duration
}

// SnapshotCounts counts the snapshots of a node since it started.
type SnapshotCounts struct{ Written, Sent, Received, Failed uint64 }

// counts has the counters behind a Status.
type counts struct {
	leaders, written, sent, received, failed, disproportionate, waited atomic.Uint64

	refused transport.RefusalCounter
}

func (c *counts) snapshots() SnapshotCounts {
	return SnapshotCounts{c.written.Load(), c.sent.Load(), c.received.Load(), c.failed.Load()}
}

// A Role is a node's role in its group.
type Role uint8

// The roles. Starting means that the directory is being read or peers are being asked.
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
	Problem       string // why it is not reachable
	// Level is the newest feature level that the member's build can apply; 0: it has not been met
	// since this node started.
	Level uint32
	Zone  string // where it says that it is; "": not reported, or not met yet
	// Applied is this node's applied index or, on the leader, the index known to be durable there;
	// else 0.
	Applied uint64
	// Stuck, on the leader, is how long the member has made no progress although it lacks committed
	// entries; see [replica.Peer]. Else 0.
	Stuck time.Duration
}

// publish makes the replica's present status visible. The loop calls it.
func (n *Node) publish() {
	s := n.replica.Status()
	n.status.Store(&s)
	n.published.Store(int64(n.Now()))
	n.refreshPeers(&s)
}

// publishMarks publishes the marks by which the replica's present state can be compared. The loop
// calls it after a turn, so that what peers reported earlier is not compared with the state of a
// snapshot alone.
func (n *Node) publishMarks() {
	if now := n.Now(); n.marks.Load() == nil || now-n.marked > lead.Time(markEvery) {
		n.marked = now
		marks := n.replica.Marks()
		n.marks.Store(&marks)
		n.compareTold()
	}
}

// markEvery is how old the marks reported in handshakes may get. They never become wrong.
const markEvery = time.Second

// Status returns the state of the node. It is at most some 50 ms old.
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

// met returns what this node and the peers that it has met say about themselves. Their levels are
// those that their builds can apply.
func (n *Node) met() map[uint64]replica.Met {
	all := map[uint64]replica.Met{n.id.Load(): {Level: command.FeatureLevel, Zone: n.cfg.Zone}}
	n.door.seen.Lock()
	defer n.door.seen.Unlock()
	for id, m := range n.door.seen.met {
		m.Level = max(m.Level, 1) // builds that do not report a level
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
