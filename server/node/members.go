package node

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/transport"
)

// maxStrangers bounds the peers that are admitted although the log here does not know them yet.
const maxStrangers = transport.MaxPeers - replica.MaxMembers

// fellows are the other nodes as the transport should know them.
type fellows struct {
	mu        sync.Mutex
	strangers map[uint64]transport.Peer // met, or learned of when joining; not in the table yet
	// status is what the peers were derived from; nil before there is a replica.
	status *replica.Status
}

// founders returns the members that the cluster starts with; none on a node that joined it.
func (n *Node) founders() (all []command.Member) {
	if n.cfg.Join != "" {
		return nil
	}
	for _, m := range n.members {
		all = append(all, command.Member{ID: m.ID, Name: m.Name, Address: m.PeerAddress, Founder: true})
	}
	return all
}

// missing lists the ids of the founders that are known not to exist.
func (n *Node) missing() (ids []uint64) {
	for _, name := range n.cfg.Missing {
		ids = append(ids, ID(n.configured(), name))
	}
	return ids
}

// logged finds a present or former member in the table.
func (n *Node) logged(id uint64) (command.Member, bool) {
	r := n.status.Load()
	if r == nil {
		return command.Member{}, false
	}
	i := slices.IndexFunc(r.Members, func(m command.Member) bool { return m.ID == id })
	if i < 0 {
		return command.Member{}, false
	}
	return r.Members[i], true
}

// known finds a member in the table or, failing that, among the founders.
func (n *Node) known(id uint64) (command.Member, bool) {
	if m, ok := n.logged(id); ok {
		return m, true
	}
	i := slices.IndexFunc(n.members, func(m MemberStatus) bool { return m.ID == id })
	if i < 0 || n.cfg.Join != "" {
		return command.Member{}, false
	}
	return command.Member{ID: id, Name: n.members[i].Name, Address: n.members[i].PeerAddress, Founder: true}, true
}

// nameOf returns a member's name for logging.
func (n *Node) nameOf(id uint64) string {
	if m, ok := n.known(id); ok {
		return m.Name
	}
	return fmt.Sprintf("%016x", id)
}

// present lists the current members by name.
func (n *Node) present(r *replica.Status) (all []MemberStatus) {
	for _, id := range memberIDs(r) {
		m, _ := n.known(id)
		one := MemberStatus{
			ID: id, Name: cmp.Or(m.Name, fmt.Sprintf("%016x", id)), PeerAddress: m.Address,
			Self: id == r.ID, Learner: slices.Contains(r.Learners, id),
		}
		if one.Self {
			one.ClientAddress, one.Reachable = n.cfg.ClientAddress, true
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b MemberStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func memberIDs(r *replica.Status) []uint64 {
	return append(slices.Clone(r.Voters), r.Learners...)
}

// befriend lets the transport reach a node that is not in the table here yet.
func (n *Node) befriend(p transport.Peer) {
	f := &n.fellows
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.strangers == nil {
		f.strangers = make(map[uint64]transport.Peer)
	}
	if _, known := n.known(p.Node); known || p.Address == "" || f.strangers[p.Node] == p {
		return
	}
	if len(f.strangers) >= maxStrangers && f.strangers[p.Node] == (transport.Peer{}) {
		return
	}
	f.strangers[p.Node] = p
	if n.transport != nil {
		n.transport.SetPeers(n.peersLocked())
	}
}

// refreshPeers passes membership changes on to the transport. The loop calls it.
func (n *Node) refreshPeers(s *replica.Status) {
	f := &n.fellows
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status != nil && sameMembers(f.status, s) {
		return
	}
	f.status = s
	var met []uint64
	for id := range f.strangers {
		if _, known := n.known(id); known {
			delete(f.strangers, id)
			met = append(met, id)
		}
	}
	n.transport.SetPeers(n.peersLocked())
	for _, id := range met {
		n.transport.Verify(id) // it is a member now, so its directory is remembered
	}
}

func sameMembers(a, b *replica.Status) bool {
	return slices.Equal(a.Voters, b.Voters) && slices.Equal(a.Learners, b.Learners) && slices.Equal(a.Members, b.Members)
}

func (n *Node) peers() []transport.Peer {
	n.fellows.mu.Lock()
	defer n.fellows.mu.Unlock()
	return n.peersLocked()
}

// peersLocked returns the current members, or the founders before there is a replica, plus the
// strangers. fellows.mu must be held.
func (n *Node) peersLocked() (all []transport.Peer) {
	var ids []uint64
	if s := n.fellows.status; s != nil {
		ids = memberIDs(s)
	} else {
		for _, m := range n.founders() {
			ids = append(ids, m.ID)
		}
	}
	for _, id := range ids {
		if m, ok := n.known(id); ok && id != n.id.Load() {
			all = append(all, transport.Peer{Node: id, Name: m.Name, Address: m.Address})
		}
	}
	for id, p := range n.fellows.strangers {
		if !slices.ContainsFunc(all, func(p transport.Peer) bool { return p.Node == id }) && id != n.id.Load() {
			all = append(all, p)
		}
	}
	return all[:min(len(all), transport.MaxPeers)]
}
