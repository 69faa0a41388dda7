package replica

import (
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A View is the part of a Status that decides where clients go. It is cheap to read, and
// comparable.
type View struct {
	Role    Role
	Term    uint64
	Leader  uint64 // 0: not known
	Serving bool   // leads and has applied an entry of its own term
}

// View returns who leads, as of the last turn.
func (r *Replica) View() View {
	return View{Role: r.role, Term: r.term, Leader: r.leader, Serving: r.lead.Serving()}
}

// Birth returns the cluster's birth as far as this replica has applied the log, zero if it has none
// yet.
func (r *Replica) Birth() command.BirthID { return r.machine.Birth() }

// Level returns the cluster's feature level as far as this replica has applied the log.
func (r *Replica) Level() uint32 { return r.level() }

// Recovery returns what a restored cluster waits for; see [machine.Recovery].
func (r *Replica) Recovery() machine.Recovery { return r.machine.Recovery() }

// Life is like Birth, and also reports whether the cluster began without one; see
// [machine.Machine.Rootless].
func (r *Replica) Life() (birth command.BirthID, rootless bool) {
	return r.machine.Birth(), r.machine.Rootless()
}

// Marks returns the marks by which this replica's state can be compared; see
// [machine.Machine.Marks].
func (r *Replica) Marks() []machine.Mark { return r.machine.Marks() }
