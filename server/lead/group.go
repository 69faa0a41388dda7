package lead

import "github.com/lockstep-dev/lockstep/server/command"

// A Group is what a Lead asks of the group of replicas that it leads. Its methods are called from
// within the methods of the Lead, of which they may call Term, Reply and NextBatch, and only while
// the Lead serves; NoFloor also at other times.
type Group interface {
	// Propose offers an entry to the log. An error says that it was not accepted: it is offered
	// again in the next turn.
	Propose(entry []byte) error
	// StartRound asks a quorum whether this replica still leads. [Lead.Confirm] reports that it
	// does; nothing reports that it does not.
	StartRound(number uint64)

	// WantsFounding reports whether a young cluster, or one without a birth, lacks one of its first
	// commands, and Founding makes them for the entry that is about to be proposed.
	WantsFounding() bool
	Founding() []command.Command
	// WantsMembers reports whether something is known of a member that is not in the log, and
	// Members makes the commands that log it.
	WantsMembers() bool
	Members() []command.Command
	// LacksEntry reports whether the replica needs some entry to be logged, for a snapshot.
	LacksEntry() bool

	// NoFloor returns why a young cluster has no token floor yet, or "".
	NoFloor() string
	// Floored reports whether the token floor is logged, or on its way through the log.
	Floored() bool

	// ChangeMembers proposes a membership change, or refuses it. The answer goes to [Lead.Reply], at
	// once or when the change is applied.
	ChangeMembers(q *Request, b ChangeMembers)
	// PlanLevel returns the limits that raise the feature level as asked, or why not.
	PlanLevel(b RaiseLevel) (command.Limits, *Refused)
}
