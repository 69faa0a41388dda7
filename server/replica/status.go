package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A Role is a replica's role in its group.
type Role uint8

// The roles.
const (
	Follower Role = iota
	Candidate
	Leader
)

func (r Role) String() string {
	return [...]string{"follower", "candidate", "leader"}[r]
}

// A Status describes a replica as it sees itself.
type Status struct {
	ID        uint64
	Role      Role
	Term      uint64
	Leader    uint64 // 0: not known
	Serving   bool   // leads and has applied an entry of its own term
	Applied   uint64
	Committed uint64
	LastIndex uint64
	Snapshot  uint64 // index of the last durable snapshot
	Learner   bool
	Voters    []uint64
	Learners  []uint64
	Members   []command.Member // the member table, including former members; not to be modified
	Peers     []Peer           // by id, without this node; on a leader only
	Counts    machine.Counts

	Queued   int // commands waiting for a batch
	InFlight int // this node's entries that are proposed and not applied
	Held     int // requests waiting for a quorum round
	Expiring int // sessions whose end is proposed
	Attached int // sessions bound to a stream

	Disproportionate uint64 // peers' messages dropped since the start: see [OutOfProportion]

	// DiskBusy is the age of the oldest write in flight at the last turn; 0 when there is none.
	DiskBusy time.Duration
	// Confirmed is how long before the last turn the newest confirmed quorum round was started; on
	// a leader only.
	Confirmed time.Duration
	// Level is the feature level of the cluster as far as this replica has applied the log.
	Level uint32
	// NoFloor, if not empty, says why a new cluster has no token floor yet, so that nothing is
	// granted.
	NoFloor string
	// GrantsHeld, if not empty, says why nothing is granted now: NoFloor, the wait after a restore,
	// or exhausted tokens. GrantsHeldFor is how long that lasts: on the leader the time left,
	// elsewhere the longest it can be; 0: not known.
	GrantsHeld    string
	GrantsHeldFor time.Duration
}

// StuckAfter is how long a peer may lack committed entries and receive none before it counts as
// stuck.
const StuckAfter = 10 * time.Second

// A Peer is another member as the leader sees it.
type Peer struct {
	ID      uint64
	Match   uint64 // known to be durable there up to this index
	State   string // probe, replicate or snapshot
	Learner bool
	Active  bool // heard from within the last election timeout
	// Stuck is how long Match has not risen although the peer lacks committed entries; 0 while it
	// makes progress. From [StuckAfter] on the peer is unhealthy, whatever its State.
	Stuck time.Duration
}

// Status returns the state of the replica.
func (r *Replica) Status() Status {
	l := r.lead.Stats()
	last, _ := r.disk.LastIndex() // never returns an error
	s := Status{
		ID: r.cfg.ID, Role: r.role, Term: r.term, Leader: r.leader, Serving: r.lead.Serving(),
		Applied: r.applied, Committed: r.committed, LastIndex: last, Snapshot: r.snaps.index,
		Learner:  slices.Contains(r.confState.GetLearners(), r.cfg.ID),
		Voters:   slices.Clone(r.confState.GetVoters()),
		Learners: slices.Clone(r.confState.GetLearners()),
		Members:  r.machine.Members(),
		Counts:   r.machine.Counts(),
		Queued:   l.Queued,
		InFlight: l.InFlight,
		Held:     l.Held,
		Expiring: l.Expiring,
		Attached: l.Attached,
		DiskBusy: r.writes.busy(r.awake), NoFloor: r.founding.noFloor, Disproportionate: r.disproportionate,
		Level: r.level(),
	}
	s.GrantsHeld, s.GrantsHeldFor = r.lead.GrantsHeld()
	if r.role == Leader {
		s.Peers = r.peers()
		s.Confirmed = time.Duration(r.now - l.Confirmed)
	}
	return s
}

func (r *Replica) peers() (peers []Peer) {
	r.raft.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id != r.cfg.ID {
			peers = append(peers, Peer{
				ID: id, Match: pr.Match, State: pr.State.String(),
				Learner: typ == raft.ProgressTypeLearner, Active: pr.RecentActive,
				Stuck: r.views.stuck(id, pr.Match, r.core),
			})
		}
	})
	return peers
}
