package command

// A Member is a node that belongs to the group, or did. Whether it votes is left to Raft.
type Member struct {
	ID      uint64 // never used again for another node
	Name    string // unique among present members
	Address string // where its peers dial it, host:port
	// Instance identifies its data directory, once it is known. It never changes: a node that comes
	// with another directory has lost what it promised.
	Instance [16]byte
	Founder  bool // one of the nodes that the group started with
	Removed  bool // no longer a member
}

// SetMember adds a member, or updates one: its address, and its instance if none is known yet.
type SetMember struct{ Member Member }

// RemoveMember removes a member from the group. It is idempotent.
type RemoveMember struct{ ID uint64 }

func (SetMember) command()    {}
func (RemoveMember) command() {}
