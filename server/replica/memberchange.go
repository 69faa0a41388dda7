package replica

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// meet records what a handshake has shown about a peer.
func (r *Replica) meet(in Met) {
	r.members.meet(in)
	if r.lead.Serving() {
		r.zones.note()
	}
}

// changeMembers proposes one membership change, or says why not.
func (r *Replica) changeMembers(q *lead.Request, b lead.ChangeMembers) {
	if m, made := r.members.changeMade(b); made {
		r.lead.Reply(q, lead.MembersChanged{Member: m})
		return
	}
	if c := r.members.change; c != nil && r.now-c.since < lead.Time(changeTimeout) {
		r.refuseChange(q, lead.MembersBusy, fmt.Sprintf("a change of member %q is in progress", c.member.Name))
		return
	}
	cc, m, refusal, why := r.members.planChange(b)
	if why != "" {
		r.refuseChange(q, refusal, why)
		return
	}
	number := r.lead.NextBatch()
	cc.NodeId = new(m.ID)
	cc.Context = command.AppendEntry(nil, &command.Entry{
		Header:   command.Header{Proposer: r.cfg.ID, Batch: number, Wall: r.wall},
		Commands: []command.Command{memberCommand(b.Change, m)},
	})
	if err := r.raft.ProposeConfChange(cc); err != nil {
		r.refuseChange(q, lead.MembersBusy, err.Error())
		return
	}
	r.log.Info("membership: proposed", "change", cc.GetType(), "member", m.Name, "id", fmt.Sprintf("%016x", m.ID))
	r.members.change = &proposedChange{number: number, asked: *q, member: m, since: r.now}
}

func memberCommand(c lead.MemberChange, m command.Member) command.Command {
	if c == lead.RemoveMember {
		return command.RemoveMember{ID: m.ID}
	}
	return command.SetMember{Member: m}
}

func (r *Replica) refuseChange(q *lead.Request, reason lead.Refusal, why string) {
	r.lead.Reply(q, lead.Refused{Reason: reason, Limit: why})
}

// applyMembership applies the machine's part of a membership change, and reports whether Raft's
// part is to follow: both change with the same entry on every replica.
func (r *Replica) applyMembership(done *Applied, data []byte) (accepted bool) {
	entry, err := command.DecodeEntry(data)
	if err != nil {
		panic(fmt.Errorf("replica: context of the conf change at %d: %w", done.Index, err))
	}
	done.Entry, done.Output = &entry, r.machine.Apply(done.Index, done.Term, &entry)
	for _, result := range done.Output.Results {
		if result.Code != command.OK {
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
	if result := done.Output.Results[0]; result.Code != command.OK {
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
