package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// A group is the replica as its Lead sees it.
type group struct{ *Replica }

// Propose offers an entry to Raft.
func (g group) Propose(entry []byte) error { return g.raft.Propose(entry) }

// StartRound asks a quorum through Raft. The context names node, term and number, so that the
// answer to another replica's round, or to one of another term, is never taken for its own.
func (g group) StartRound(number uint64) {
	g.raft.ReadIndex(roundContext(g.cfg.ID, g.lead.Term(), number))
}

func roundContext(node, term, number uint64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 24), node)
	b = binary.BigEndian.AppendUint64(b, term)
	return binary.BigEndian.AppendUint64(b, number)
}

// confirm handles the confirmation of a round. It counts only if this replica started that round as
// leader and has led the same term since; the term of its Lead is zero otherwise. If a replica is
// deposed meanwhile, Raft forwards its rounds to the new leader, and hands back what that one
// confirmed.
func (r *Replica) confirm(state raft.ReadState) {
	b := state.RequestCtx
	if len(b) != 24 {
		return
	}
	node, term, number := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	if node != r.cfg.ID || term != r.lead.Term() {
		r.log.Debug("dropped a round of another term", "node", node, "term", term, "number", number)
		return
	}
	r.lead.Confirm(number, state.Index)
}

// WantsFounding reports whether the birth or the token floor is to be logged.
func (g group) WantsFounding() bool { return g.founding.wantsBirth() || g.founding.wantsFloor() }

// Founding logs what is wanted of the two.
func (g group) Founding() (commands []command.Command) {
	if g.founding.wantsBirth() {
		g.founding.birthLogged = true
		commands = append(commands, g.founding.birthCommands()...)
	}
	if g.founding.wantsFloor() {
		g.founding.floorLogged = true
		commands = append(commands, g.founding.floorCommands()...)
	}
	return commands
}

// WantsMembers reports whether something is known of a member that is not in the log.
func (g group) WantsMembers() bool { return g.members.wantsMembers() }

// Members logs what is known of the members.
func (g group) Members() []command.Command {
	if !g.members.wantsMembers() {
		return nil
	}
	g.members.unlogged = false
	return g.members.memberCommands()
}

// LacksEntry reports whether an owed snapshot needs an entry.
func (g group) LacksEntry() bool { return g.snaps.lacksEntry() }

// NoFloor returns why there is no token floor yet.
func (g group) NoFloor() string { return g.founding.noFloor }

// Floored reports whether the token floor is logged, or on its way.
func (g group) Floored() bool { return g.founding.floorLogged || !g.young() }

// ChangeMembers proposes a membership change.
func (g group) ChangeMembers(q *lead.Request, b lead.ChangeMembers) { g.changeMembers(q, b) }

// PlanLevel returns the limits that raise the feature level.
func (g group) PlanLevel(b lead.RaiseLevel) (command.Limits, *lead.Refused) { return g.planLevel(b) }
