package replica

import (
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

const (
	// MaxMembers bounds the voters and learners of a group: each further voter makes every write
	// wait for more.
	MaxMembers = 9
	// caughtUp is how many entries a learner may still lack when it is promoted: a second's worth
	// under load.
	caughtUp = 1_024
	// changeTimeout is when a proposed membership change that was never applied is given up. That
	// cannot happen while this replica leads, unless there is no quorum.
	changeTimeout = 30 * time.Second
)

// Met says which data directory a peer presented in an admitted handshake, and the newest feature
// level that it supports; zero for builds that do not report one.
type Met struct {
	ID       uint64
	Instance [16]byte
	Level    uint32
	Zone     string // where it says that it is; "": not reported
}

func (Met) input() {}

// A membership is what a replica knows about the other members apart from Raft and the machine.
type membership struct {
	*core
	met map[uint64]Met // what handshakes have shown

	// Of a leader:
	unlogged bool                 // something may be known that the table lacks
	heard    map[uint64]lead.Time // when a peer's last message arrived
	change   *proposedChange      // at most one is in flight
}

type proposedChange struct {
	number uint64 // Header.Batch of its entry
	asked  lead.Request
	member command.Member
	since  lead.Time
}

// hears records, on a leader, that a peer is alive.
func (s *membership) hears(from uint64) {
	if s.heard == nil {
		s.heard = make(map[uint64]lead.Time)
	}
	s.heard[from] = s.now
}

// changeMade finds the member of a change that is already in force: the request may be a retry.
func (s *membership) changeMade(b lead.ChangeMembers) (command.Member, bool) {
	m, present := s.memberNamed(b.Member.Name)
	switch b.Change {
	case lead.AddLearner:
		return m, present && m.Address == b.Member.Address && m.Instance == [16]byte{} && s.isLearner(m.ID)
	case lead.PromoteLearner:
		return m, present && s.isVoter(m.ID)
	default:
		all := s.machine.Members()
		gone := slices.IndexFunc(all, func(m command.Member) bool { return m.Removed && m.Name == b.Member.Name })
		if present || gone < 0 {
			return m, false
		}
		return all[gone], true
	}
}

func (s *membership) memberNamed(name string) (command.Member, bool) {
	for _, m := range s.machine.Members() {
		if m.Name == name && !m.Removed {
			return m, true
		}
	}
	return command.Member{}, false
}

// planChange checks a change against the present membership and the health of its members.
func (s *membership) planChange(b lead.ChangeMembers) (*raftpb.ConfChange, command.Member, lead.Refusal, string) {
	if missing := s.unknownMembers(); missing > 0 {
		return nil, command.Member{}, lead.MembersBusy, fmt.Sprintf("%d members are not in the log yet", missing)
	}
	m, present := s.memberNamed(b.Member.Name)
	switch {
	case b.Change == lead.AddLearner:
		return s.planAdd(b.Member)
	case !present:
		return nil, m, lead.MembersRefused, fmt.Sprintf("no member %q", b.Member.Name)
	case b.Change == lead.PromoteLearner:
		refusal, why := s.mayPromote(m)
		return &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum()}, m, refusal, why
	default:
		refusal, why := s.mayRemove(m, b.Force)
		return &raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum()}, m, refusal, why
	}
}

// unknownMembers counts those missing from the table: without their names they could not be told
// apart from new ones.
func (s *membership) unknownMembers() (missing int) {
	for _, id := range s.memberIDs() {
		if _, ok := s.machine.Member(id); !ok {
			missing++
		}
	}
	return missing
}

func (s *membership) planAdd(m command.Member) (*raftpb.ConfChange, command.Member, lead.Refusal, string) {
	why := s.machine.CheckMember(m)
	if _, known := s.machine.Member(m.ID); known && why == "" {
		why = "its id is already in use"
	}
	if n := len(s.memberIDs()); n >= MaxMembers {
		why = fmt.Sprintf("there are already %d members, the limit is %d: remove one first", n, MaxMembers)
	}
	for _, id := range s.memberIDs() {
		if other, _ := s.machine.Member(id); other.Address == m.Address {
			why = fmt.Sprintf("member %q already has address %q", other.Name, m.Address)
		}
	}
	return &raftpb.ConfChange{Type: raftpb.ConfChangeAddLearnerNode.Enum()}, m, lead.MembersRefused, why
}

// mayPromote requires that the learner has nearly all of the log, that its directory is known, and
// that the healthy voters are a majority once it is one.
func (s *membership) mayPromote(m command.Member) (lead.Refusal, string) {
	last, _ := s.disk.LastIndex() // never returns an error
	match, follows := uint64(0), false
	s.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == m.ID {
			// One that is still being probed, or waits for a snapshot, may be stuck however short
			// the log is.
			match, follows = pr.Match, pr.State == tracker.StateReplicate
		}
	})
	healthy, voters := s.healthyVoters(m.ID)
	switch {
	case !s.heardOf(m.ID) || !follows || match+caughtUp < last:
		return lead.MembersBusy, fmt.Sprintf("member %q has not caught up: it has %d of %d entries; start it, or wait", m.Name, match, last)
	case m.Instance == [16]byte{}:
		return lead.MembersBusy, fmt.Sprintf("the data directory of member %q is not in the log yet: wait", m.Name)
	case healthy+1 <= (voters+1)/2:
		return lead.MembersBusy, fmt.Sprintf("%d of %d voters are healthy: with one more voter, they and the new one would not be a majority", healthy, voters)
	}
	return 0, ""
}

// mayRemove requires that the healthy voters left are a majority of the voters left.
func (s *membership) mayRemove(m command.Member, force bool) (lead.Refusal, string) {
	if !s.isVoter(m.ID) {
		return 0, ""
	}
	healthy, others := s.healthyVoters(m.ID)
	switch {
	case others == 0:
		return lead.MembersRefused, fmt.Sprintf("member %q is the only voter", m.Name)
	case m.ID == s.cfg.ID:
		return lead.MembersBusy, fmt.Sprintf("member %q is the leader: hand over leadership first", m.Name)
	case healthy <= others/2 && !force:
		return lead.MembersRefused, fmt.Sprintf("of the %d voters that would remain, %d are healthy, which is not a majority: "+
			"start more of them first, or use --force", others, healthy)
	}
	return 0, ""
}

// healthyVoters counts the voters except one, and how many of them are alive.
func (s *membership) healthyVoters(without uint64) (healthy, voters int) {
	for _, id := range s.confState.GetVoters() {
		if id == without {
			continue
		}
		voters++
		if id == s.cfg.ID || s.heardOf(id) {
			healthy++
		}
	}
	return healthy, voters
}

// heardOf reports whether a message from the member arrived within the last election timeout. Every
// member answers heartbeats.
func (s *membership) heardOf(id uint64) bool {
	at, ok := s.heard[id]
	return ok && s.now-at <= lead.Time(s.cfg.ElectionTicks)*lead.Time(s.cfg.TickEvery)
}

// meet records what a handshake has shown.
func (s *membership) meet(in Met) {
	if s.met == nil {
		s.met = make(map[uint64]Met)
	}
	s.met[in.ID], s.unlogged = in, true
}

// deposed forgets what only a leader knows.
func (s *membership) deposed() { s.change, s.heard = nil, nil }

// wantsMembers reports whether the leader knows something about a member that is not in the log.
func (s *membership) wantsMembers() bool {
	if s.unlogged && len(s.memberCommands()) == 0 {
		s.unlogged = false
	}
	return s.unlogged
}

// memberCommands log the founders, and the instances that handshakes have shown since.
func (s *membership) memberCommands() (commands []command.Command) {
	for _, id := range s.memberIDs() {
		m, logged := s.machine.Member(id)
		if !logged {
			i := slices.IndexFunc(s.cfg.Founders, func(f command.Member) bool { return f.ID == id })
			if i < 0 {
				continue
			}
			m = s.cfg.Founders[i]
		}
		instance := s.met[id].Instance
		if logged && (m.Instance != [16]byte{} || instance == [16]byte{}) {
			continue
		}
		m.Instance = instance
		if s.machine.CheckMember(m) == "" {
			commands = append(commands, command.SetMember{Member: m})
		}
	}
	return commands
}

// neededAfter returns the index after which a recently heard follower still needs the log: it has
// everything up to there, or gets it with the snapshot on its way. Without this, a follower whose
// snapshot takes longer than the time between two snapshots would find the log gone each time.
func (s *membership) neededAfter() uint64 {
	after := uint64(math.MaxUint64)
	if s.role != Leader {
		return after
	}
	s.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if heard, ok := s.heard[id]; ok && s.now-heard <= heardFor {
			after = min(after, max(pr.Match, pr.PendingSnapshot))
		}
	})
	return after
}
