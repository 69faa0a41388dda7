package replica

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
