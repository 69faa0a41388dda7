package machine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockstep-dev/lockstep/server/command"
)

// MaxMembers bounds the member table, including removed members: they are kept so that no id is
// reused.
const MaxMembers = 1_024

// maxMemberText bounds the name and the address of a member, in bytes.
const maxMemberText = 512

// Members lists all present and former members by id. The slice must not be modified; the machine
// doesn't modify it either, so other goroutines may read it.
func (m *Machine) Members() []command.Member { return m.members }

// Member finds a present or former member.
func (m *Machine) Member(id uint64) (command.Member, bool) { return findMember(m.members, id) }

func findMember(members []command.Member, id uint64) (command.Member, bool) {
	i, ok := slices.BinarySearchFunc(members, id, func(m command.Member, id uint64) int { return cmp.Compare(m.ID, id) })
	if !ok {
		return command.Member{}, false
	}
	return members[i], true
}

// CheckMember returns why SetMember with this member would be refused, or "".
func (m *Machine) CheckMember(c command.Member) string {
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

func (m *Machine) setMember(c *command.SetMember) command.Result {
	if why := m.CheckMember(c.Member); why != "" {
		return command.Result{Code: command.Malformed, Limit: why}
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
	return command.Result{}
}

func (m *Machine) removeMember(c *command.RemoveMember) command.Result {
	old, known := m.Member(c.ID)
	if !known {
		return command.Result{Code: command.Malformed, Limit: fmt.Sprintf("member %016x does not exist", c.ID)}
	}
	old.Removed = true
	m.putMember(old)
	return command.Result{}
}

// putMember makes a new table: the old one may be in use elsewhere.
func (m *Machine) putMember(c command.Member) {
	next := slices.DeleteFunc(slices.Clone(m.members), func(old command.Member) bool { return old.ID == c.ID })
	next = append(next, c)
	slices.SortFunc(next, func(a, b command.Member) int { return cmp.Compare(a.ID, b.ID) })
	m.members = next
}

// readMembers reads the member table of a snapshot.
func (m *Machine) readMembers(d *command.Decoder) error {
	for range d.Count(21) {
		c := d.Member()
		if d.Err() != nil {
			return d.Err()
		}
		if n := len(m.members); n >= MaxMembers || n > 0 && m.members[n-1].ID >= c.ID {
			return fmt.Errorf("member %016x is in the wrong place", c.ID)
		}
		m.members = append(m.members, c)
	}
	return nil
}
