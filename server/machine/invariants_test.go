package machine

import (
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

// TestABrokenInvariantIsFound breaks a machine by hand, one way at a time. A check that cannot fail
// would let every bug pass.
func TestABrokenInvariantIsFound(t *testing.T) {
	for want, breakIt := range map[string]func(m *Machine, n *name){
		"exclusive holders": func(m *Machine, n *name) {
			k := n.waiters.head
			n.waiters.remove(k)
			k.claim.granted, k.claim.token = true, 1
			n.hold(k)
		},
		"permits of":     func(m *Machine, n *name) { permits(m).holders.head.claim.spec.Weight = 9 },
		"counted wrong":  func(m *Machine, n *name) { n.exclusive = 0 },
		"shared holders": func(m *Machine, n *name) { reads(m).holders.head.claim.token-- },
		"has token":      func(m *Machine, n *name) { n.holders.head.claim.token = m.nextToken },
		"could be":       func(m *Machine, n *name) { n.free(n.holders.head) },
		"stands behind":  func(m *Machine, n *name) { n.waiters.tail.claim.at = Position{} },
		"has position":   func(m *Machine, n *name) { n.waiters.tail.arrival++ },
		"unknown to its": func(m *Machine, n *name) { n.waiters.head.claim.session.claims = nil },
		"is over":        func(m *Machine, n *name) { n.waiters.tail.claim.granted = true },
		"does not fit":   func(m *Machine, n *name) { n.capacity = 7 },
		"waiters, walk":  func(m *Machine, n *name) { n.waiters.n++ },
		"no state to be": func(m *Machine, n *name) { n.pending = true },
		"with 0 holders": func(m *Machine, n *name) { n.holders, n.waiters = list{}, queue{} },
		"has weight":     func(m *Machine, n *name) { n.waiters.head.claim.session.weight++ },
		"counted again":  func(m *Machine, n *name) { m.counts.Waiters++ },
		"in the tables":  func(m *Machine, n *name) { m.order.Delete(n) },
		"is not closing": func(m *Machine, n *name) { s := n.holders.head.claim.session; s.closing = s.claims },
		"lives although": func(m *Machine, n *name) { n.holders.head.claim.session.ended = command.SessionExpired },
		"nonces for": func(m *Machine, n *name) {
			n.holders.head.claim.session.nonces = map[string]uint64{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
		},
		"is granted, or":  func(m *Machine, n *name) { n.waiters.head.claim.granted = true },
		"the next is":     func(m *Machine, n *name) { m.nextToken = 1 },
		"gone true, with": func(m *Machine, n *name) { n.gone = true },
	} {
		m, ids := opened(3)
		apply(m,
			exclusive(ids[0], 1, "a"), exclusive(ids[1], 1, "a"), exclusive(ids[2], 1, "a"),
			command.Acquire{Session: ids[0], Seq: 2, Spec: command.Spec{Names: []string{"p"}, Mode: command.Permits, Weight: 1, Capacity: 1}},
			command.Acquire{Session: ids[0], Seq: 3, Spec: command.Spec{Names: []string{"r"}, Mode: command.Shared}},
			command.Acquire{Session: ids[1], Seq: 3, Spec: command.Spec{Names: []string{"r"}, Mode: command.Shared}},
		)
		breakIt(m, m.find("a", hashText(0, "a")))
		var found []string
		for _, err := range []error{m.CheckTouched(), m.CheckInvariants()} {
			if err != nil {
				found = append(found, err.Error())
			}
		}
		if got := strings.Join(found, "\n"); got == "" || !strings.Contains(got, want) {
			t.Errorf("the checks give %q, want one with %q", got, want)
		}
	}
}

func permits(m *Machine) *name { return m.find("p", hashText(0, "p")) }
func reads(m *Machine) *name   { return m.find("r", hashText(0, "r")) }
