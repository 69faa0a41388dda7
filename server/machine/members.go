package machine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// MaxMembers bounds the member table, including removed members: they are kept so that no id is
// reused.
const MaxMembers = 1_024

// maxMemberText bounds the name and the address of a member, in bytes.
const maxMemberText = 512

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

// Members lists all present and former members by id. The slice must not be modified; the machine
// doesn't modify it either, so other goroutines may read it.
func (m *Machine) Members() []Member { return m.members }

// Member finds a present or former member.
func (m *Machine) Member(id uint64) (Member, bool) { return findMember(m.members, id) }

func findMember(members []Member, id uint64) (Member, bool) {
	i, ok := slices.BinarySearchFunc(members, id, func(m Member, id uint64) int { return cmp.Compare(m.ID, id) })
	if !ok {
		return Member{}, false
	}
	return members[i], true
}

// CheckMember returns why SetMember with this member would be refused, or "".
func (m *Machine) CheckMember(c Member) string {
	if c.ID == 0 || c.Name == "" || len(c.Name) > maxMemberText || len(c.Address) > maxMemberText || c.Removed {
		return "a member needs an id, a name and an address"
	}
	old, known := m.Member(c.ID)
	switch {
	case known && old.Removed:
		return fmt.Sprintf("member %q (%016x) was removed, and ids are not reused", old.Name, c.ID)
	case known && old.Name != c.Name:
		return fmt.Sprintf("member %016x is called %q", c.ID, old.Name)
	case known && old.Instance != [16]byte{} && c.Instance != [16]byte{} && old.Instance != c.Instance:
		return fmt.Sprintf("member %q is known with another data directory", c.Name)
	case !known && len(m.members) >= MaxMembers:
		return fmt.Sprintf("%d members, including former ones, is the limit", MaxMembers)
	}
	for _, other := range m.members {
		if !other.Removed && other.ID != c.ID && other.Name == c.Name {
			return fmt.Sprintf("member %q already exists", c.Name)
		}
	}
	return ""
}

func (m *Machine) setMember(c *SetMember) Result {
	if why := m.CheckMember(c.Member); why != "" {
		return Result{Code: Malformed, Limit: why}
	}
	next := c.Member
	old, known := m.Member(next.ID)
	if known {
		next.Founder = old.Founder
		if next.Instance == [16]byte{} {
			next.Instance = old.Instance
		}
	}
	m.putMember(next)
	return Result{}
}

func (m *Machine) removeMember(c *RemoveMember) Result {
	old, known := m.Member(c.ID)
	if !known {
		return Result{Code: Malformed, Limit: fmt.Sprintf("member %016x does not exist", c.ID)}
	}
	old.Removed = true
	m.putMember(old)
	return Result{}
}

// putMember makes a new table: the old one may be in use elsewhere.
func (m *Machine) putMember(c Member) {
	next := slices.DeleteFunc(slices.Clone(m.members), func(old Member) bool { return old.ID == c.ID })
	next = append(next, c)
	slices.SortFunc(next, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	m.members = next
}

func appendMember(b []byte, c *Member) []byte {
	b = binary.AppendUvarint(b, c.ID)
	b = appendText(appendText(b, c.Name), c.Address)
	b = append(b, c.Instance[:]...)
	return appendBool(appendBool(b, c.Founder), c.Removed)
}

func decodeMember(d *decoder) Member {
	return Member{
		ID: d.uint(), Name: d.text(), Address: d.text(), Instance: d.bytes16(), Founder: d.bool(), Removed: d.bool(),
	}
}

// readMembers reads the member table of a snapshot.
func (m *Machine) readMembers(d *decoder) error {
	for range d.count(21) {
		c := decodeMember(d)
		if d.err != nil {
			return d.err
		}
		if n := len(m.members); n >= MaxMembers || n > 0 && m.members[n-1].ID >= c.ID {
			return fmt.Errorf("member %016x is in the wrong place", c.ID)
		}
		m.members = append(m.members, c)
	}
	return nil
}
