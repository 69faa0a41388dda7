package replica

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
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
	met map[uint64]Met // what handshakes have shown

	// Of a leader:
	unlogged bool                 // something may be known that the table lacks
	heard    map[uint64]lead.Time // when a peer's last message arrived
	change   *proposedChange      // at most one is in flight
}

type proposedChange struct {
	number uint64 // Header.Batch of its entry
	asked  lead.Request
	member machine.Member
	since  lead.Time
}

// hears records that a peer is alive.
func (r *Replica) hears(from uint64) {
	if r.lead.Term() == 0 {
		return
	}
	if r.members.heard == nil {
		r.members.heard = make(map[uint64]lead.Time)
	}
	r.members.heard[from] = r.now
}

func (r *Replica) meet(in Met) {
	if r.members.met == nil {
		r.members.met = make(map[uint64]Met)
	}
	r.members.met[in.ID], r.members.unlogged = in, true
	if r.lead.Serving() {
		r.noteZones()
	}
}

// changeMembers proposes one membership change, or says why not.
func (r *Replica) changeMembers(q *lead.Request, b lead.ChangeMembers) {
	if m, made := r.changeMade(b); made {
		r.lead.Reply(q, lead.MembersChanged{Member: m})
		return
	}
	if c := r.members.change; c != nil && r.now-c.since < lead.Time(changeTimeout) {
		r.refuseChange(q, lead.MembersBusy, fmt.Sprintf("a change of member %q is in progress", c.member.Name))
		return
	}
	cc, m, refusal, why := r.planChange(b)
	if why != "" {
		r.refuseChange(q, refusal, why)
		return
	}
	number := r.lead.NextBatch()
	cc.NodeId = new(m.ID)
	cc.Context = machine.AppendEntry(nil, &machine.Entry{
		Header:   machine.Header{Proposer: r.cfg.ID, Batch: number, Wall: r.wall},
		Commands: []machine.Command{memberCommand(b.Change, m)},
	})
	if err := r.raft.ProposeConfChange(cc); err != nil {
		r.refuseChange(q, lead.MembersBusy, err.Error())
		return
	}
	r.log.Info("membership: proposed", "change", cc.GetType(), "member", m.Name, "id", fmt.Sprintf("%016x", m.ID))
	r.members.change = &proposedChange{number: number, asked: *q, member: m, since: r.now}
}

func memberCommand(c lead.MemberChange, m machine.Member) machine.Command {
	if c == lead.RemoveMember {
		return machine.RemoveMember{ID: m.ID}
	}
	return machine.SetMember{Member: m}
}

func (r *Replica) refuseChange(q *lead.Request, reason lead.Refusal, why string) {
	r.lead.Reply(q, lead.Refused{Reason: reason, Limit: why})
}

// changeMade finds the member of a change that is already in force: the request may be a retry.
func (r *Replica) changeMade(b lead.ChangeMembers) (machine.Member, bool) {
	m, present := r.memberNamed(b.Member.Name)
	switch b.Change {
	case lead.AddLearner:
		return m, present && m.Address == b.Member.Address && m.Instance == [16]byte{} && r.isLearner(m.ID)
	case lead.PromoteLearner:
		return m, present && r.isVoter(m.ID)
	default:
		all := r.machine.Members()
		gone := slices.IndexFunc(all, func(m machine.Member) bool { return m.Removed && m.Name == b.Member.Name })
		if present || gone < 0 {
			return m, false
		}
		return all[gone], true
	}
}

func (r *Replica) memberNamed(name string) (machine.Member, bool) {
	for _, m := range r.machine.Members() {
		if m.Name == name && !m.Removed {
			return m, true
		}
	}
	return machine.Member{}, false
}

func (r *Replica) isVoter(id uint64) bool   { return slices.Contains(r.confState.GetVoters(), id) }
func (r *Replica) isLearner(id uint64) bool { return slices.Contains(r.confState.GetLearners(), id) }

// planChange checks a change against the present membership and the health of its members.
func (r *Replica) planChange(b lead.ChangeMembers) (*raftpb.ConfChange, machine.Member, lead.Refusal, string) {
	if missing := r.unknownMembers(); missing > 0 {
		return nil, machine.Member{}, lead.MembersBusy, fmt.Sprintf("%d members are not in the log yet", missing)
	}
	m, present := r.memberNamed(b.Member.Name)
	switch {
	case b.Change == lead.AddLearner:
		return r.planAdd(b.Member)
	case !present:
		return nil, m, lead.MembersRefused, fmt.Sprintf("no member %q", b.Member.Name)
	case b.Change == lead.PromoteLearner:
		refusal, why := r.mayPromote(m)
		return &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum()}, m, refusal, why
	default:
		refusal, why := r.mayRemove(m, b.Force)
		return &raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum()}, m, refusal, why
	}
}

// unknownMembers counts those missing from the table: without their names they could not be told
// apart from new ones.
func (r *Replica) unknownMembers() (missing int) {
	for _, id := range r.memberIDs() {
		if _, ok := r.machine.Member(id); !ok {
			missing++
		}
	}
	return missing
}

func (r *Replica) memberIDs() []uint64 {
	return append(slices.Clone(r.confState.GetVoters()), r.confState.GetLearners()...)
}

func (r *Replica) planAdd(m machine.Member) (*raftpb.ConfChange, machine.Member, lead.Refusal, string) {
	why := r.machine.CheckMember(m)
	if _, known := r.machine.Member(m.ID); known && why == "" {
		why = "its id is already in use"
	}
	if n := len(r.memberIDs()); n >= MaxMembers {
		why = fmt.Sprintf("there are already %d members, the limit is %d: remove one first", n, MaxMembers)
	}
	for _, id := range r.memberIDs() {
		if other, _ := r.machine.Member(id); other.Address == m.Address {
			why = fmt.Sprintf("member %q already has address %q", other.Name, m.Address)
		}
	}
	return &raftpb.ConfChange{Type: raftpb.ConfChangeAddLearnerNode.Enum()}, m, lead.MembersRefused, why
}

// mayPromote requires that the learner has nearly all of the log, that its directory is known, and
// that the healthy voters are a majority once it is one.
func (r *Replica) mayPromote(m machine.Member) (lead.Refusal, string) {
	last, _ := r.disk.LastIndex() // never returns an error
	match, follows := uint64(0), false
	r.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == m.ID {
			// One that is still being probed, or waits for a snapshot, may be stuck however short
			// the log is.
			match, follows = pr.Match, pr.State == tracker.StateReplicate
		}
	})
	healthy, voters := r.healthyVoters(m.ID)
	switch {
	case !r.heardOf(m.ID) || !follows || match+caughtUp < last:
		return lead.MembersBusy, fmt.Sprintf("member %q has not caught up: it has %d of %d entries; start it, or wait", m.Name, match, last)
	case m.Instance == [16]byte{}:
		return lead.MembersBusy, fmt.Sprintf("the data directory of member %q is not in the log yet: wait", m.Name)
	case healthy+1 <= (voters+1)/2:
		return lead.MembersBusy, fmt.Sprintf("%d of %d voters are healthy: with one more voter, they and the new one would not be a majority", healthy, voters)
	}
	return 0, ""
}

// mayRemove requires that the healthy voters left are a majority of the voters left.
func (r *Replica) mayRemove(m machine.Member, force bool) (lead.Refusal, string) {
	if !r.isVoter(m.ID) {
		return 0, ""
	}
	healthy, others := r.healthyVoters(m.ID)
	switch {
	case others == 0:
		return lead.MembersRefused, fmt.Sprintf("member %q is the only voter", m.Name)
	case m.ID == r.cfg.ID:
		return lead.MembersBusy, fmt.Sprintf("member %q is the leader: hand over leadership first", m.Name)
	case healthy <= others/2 && !force:
		return lead.MembersRefused, fmt.Sprintf("of the %d voters that would remain, %d are healthy, which is not a majority: "+
			"start more of them first, or use --force", others, healthy)
	}
	return 0, ""
}

// healthyVoters counts the voters except one, and how many of them are alive.
func (r *Replica) healthyVoters(without uint64) (healthy, voters int) {
	for _, id := range r.confState.GetVoters() {
		if id == without {
			continue
		}
		voters++
		if id == r.cfg.ID || r.heardOf(id) {
			healthy++
		}
	}
	return healthy, voters
}

// heardOf reports whether a message from the member arrived within the last election timeout. Every
// member answers heartbeats.
func (r *Replica) heardOf(id uint64) bool {
	at, ok := r.members.heard[id]
	return ok && r.now-at <= lead.Time(r.cfg.ElectionTicks)*lead.Time(r.cfg.TickEvery)
}

// applyMembership applies the machine's part of a membership change, and reports whether Raft's
// part is to follow: both change with the same entry on every replica.
func (r *Replica) applyMembership(done *Applied, data []byte) (accepted bool) {
	entry, err := machine.DecodeEntry(data)
	if err != nil {
		panic(fmt.Errorf("replica: context of the conf change at %d: %w", done.Index, err))
	}
	done.Entry, done.Output = &entry, r.machine.Apply(done.Index, done.Term, &entry)
	for _, result := range done.Output.Results {
		if result.Code != machine.OK {
			r.log.Warn("membership: refused", "index", done.Index, "reason", result.Limit)
			return false
		}
	}
	return true
}

// afterMembership answers the caller that asked for the change, and stops a replica that was
// removed.
func (r *Replica) afterMembership(done *Applied) {
	r.members.unlogged = true
	r.leaveIfRemoved()
	c := r.members.change
	if c == nil || r.lead.Term() != done.Term || done.Entry.Header.Batch != c.number {
		return
	}
	r.members.change = nil
	if result := done.Output.Results[0]; result.Code != machine.OK {
		r.refuseChange(&c.asked, lead.MembersRefused, result.Limit)
		return
	}
	r.log.Info("membership: changed", "member", c.member.Name, "voters", len(r.confState.GetVoters()), "learners", len(r.confState.GetLearners()))
	r.lead.Reply(&c.asked, lead.MembersChanged{Member: c.member})
}

func (r *Replica) leaveIfRemoved() {
	if m, ok := r.machine.Member(r.cfg.ID); ok && m.Removed {
		r.out.Exit, r.out.Stalled = RemovedText(m.Name), false
	}
}

// RemovedText says that a member was removed and what to do.
func RemovedText(name string) string {
	return fmt.Sprintf("member %q was removed from the cluster: delete its data directory; to bring it back, add it as a new "+
		"member (lockstep member add) and start it with --join", name)
}

// wantsMembers reports whether the leader knows something about a member that is not in the log.
func (r *Replica) wantsMembers() bool {
	if r.members.unlogged && len(r.memberCommands()) == 0 {
		r.members.unlogged = false
	}
	return r.members.unlogged
}

// memberCommands log the founders, and the instances that handshakes have shown since.
func (r *Replica) memberCommands() (commands []machine.Command) {
	for _, id := range r.memberIDs() {
		m, logged := r.machine.Member(id)
		if !logged {
			i := slices.IndexFunc(r.cfg.Founders, func(f machine.Member) bool { return f.ID == id })
			if i < 0 {
				continue
			}
			m = r.cfg.Founders[i]
		}
		instance := r.members.met[id].Instance
		if logged && (m.Instance != [16]byte{} || instance == [16]byte{}) {
			continue
		}
		m.Instance = instance
		if r.machine.CheckMember(m) == "" {
			commands = append(commands, machine.SetMember{Member: m})
		}
	}
	return commands
}
