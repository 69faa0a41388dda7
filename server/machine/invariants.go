package machine

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
)

// CheckInvariants walks over the whole state and reports the first invariant that does not hold. It
// is meant for tests, the simulator and [Restore].
func (m *Machine) CheckInvariants() error {
	counts := Counts{Names: m.order.Len()}
	inTables, places := 0, 0
	for i := range m.names {
		inTables += len(m.names[i].m)
	}
	if inTables != counts.Names {
		return fmt.Errorf("machine: %d names in the tables, %d in order", inTables, counts.Names)
	}
	var err error
	m.order.Ascend(func(n *name) bool {
		places += n.holders.n + n.waiters.n
		err = m.checkName(n)
		return err == nil
	})
	if err != nil {
		return err
	}
	for i := range m.shards {
		counts.Sessions += len(m.shards[i].live.m)
		for _, t := range [...]*table[command.SessionID, *session]{&m.shards[i].live, &m.shards[i].leaving} {
			for _, s := range sortedSessions(t) {
				if err := s.check(&counts, &places); err != nil {
					return err
				}
			}
		}
	}
	if m.byID.Len() != counts.Sessions {
		return fmt.Errorf("machine: %d sessions in the tables, %d in order", counts.Sessions, m.byID.Len())
	}
	if places != 0 {
		return fmt.Errorf("machine: %d places at names belong to no claim", places)
	}
	if counts != m.counts {
		return fmt.Errorf("machine: counts are %+v, counted again %+v", m.counts, counts)
	}
	return nil
}

// CheckTouched is like CheckInvariants, but checks only the names that the last entry touched.
func (m *Machine) CheckTouched() error {
	for _, n := range m.touched {
		if n.gone != n.empty() {
			return fmt.Errorf("machine: name %q: gone %v, with %d holders and %d waiters", n.text, n.gone, n.holders.n, n.waiters.n)
		}
		if n.gone {
			continue
		}
		if err := m.checkName(n); err != nil {
			return err
		}
	}
	return nil
}

// check adds the claims of the session to counts and subtracts their places from places.
func (s *session) check(counts *Counts, places *int) error {
	weight := 0
	counts.Checkpointed += written(s.leaseEnd)
	if s.ended != command.OK && s.leaseEnd != 0 {
		return fmt.Errorf("machine: session %v has ended and its lease is written down", s.id)
	}
	for _, c := range s.claims {
		weight += len(c.links)
		*places -= len(c.links)
		if c.granted {
			counts.Holders++
		} else {
			counts.Waiters++
		}
		if s.ended != command.OK || c.closing {
			return fmt.Errorf("machine: claim %d of session %v lives although it or its session is over", c.seq, s.id)
		}
	}
	for _, c := range s.closing {
		counts.Closing++
		counts.Checkpointed += written(c.delayEnd)
		*places -= len(c.links)
		if !c.closing || !c.granted || c.delay == 0 {
			return fmt.Errorf("machine: claim %d of session %v is not closing", c.seq, s.id)
		}
	}
	for i := range s.outcomes {
		weight += int(s.outcomes[i].names)
	}
	counts.Bytes += s.bytes
	if n := s.weighed(); n != s.bytes {
		return fmt.Errorf("machine: session %v has %d bytes, counted again %d", s.id, s.bytes, n)
	}
	if weight != int(s.weight) {
		return fmt.Errorf("machine: session %v has weight %d, counted again %d", s.id, s.weight, weight)
	}
	if len(s.nonces) > len(s.claims)+len(s.outcomes) {
		return fmt.Errorf("machine: session %v has %d nonces for %d claims", s.id, len(s.nonces), len(s.claims)+len(s.outcomes))
	}
	return nil
}

func (m *Machine) checkName(n *name) error {
	if n.gone || n.pending || n.empty() || m.find(n.text, n.hash) != n {
		return fmt.Errorf("machine: name %q is in no state to be left in", n.text)
	}
	if err := m.checkHolders(n); err != nil {
		return err
	}
	return m.checkQueue(n)
}

func (m *Machine) checkHolders(n *name) error {
	exclusive, used, count := 0, uint64(0), 0
	var shared command.Token // of the live shared holders
	for k := n.holders.head; k != nil; k = k.next {
		c := k.claim
		count++
		if err := m.checkLink(n, k); err != nil {
			return err
		}
		if !c.granted || c.token == 0 || c.token >= m.nextToken {
			return fmt.Errorf("machine: holder %v of %q has token %d, the next is %d", c.id(), n.text, c.token, m.nextToken)
		}
		switch {
		case c.spec.Mode == command.Exclusive:
			exclusive++
		case c.spec.Mode == command.Permits:
			used += uint64(c.spec.Weight)
		case !c.closing && shared == 0:
			shared = c.token
		case !c.closing && c.token != shared:
			return fmt.Errorf("machine: shared holders of %q have tokens %d and %d", n.text, shared, c.token)
		}
	}
	if exclusive > 1 || exclusive == 1 && count > 1 {
		return fmt.Errorf("machine: %q has %d exclusive holders of %d", n.text, exclusive, count)
	}
	if used > uint64(n.capacity) {
		return fmt.Errorf("machine: %d of %d permits of %q are held", used, n.capacity, n.text)
	}
	if exclusive != n.exclusive || used != n.used || count != n.holders.n {
		return fmt.Errorf("machine: holders of %q are counted wrong", n.text)
	}
	return nil
}

func (m *Machine) checkQueue(n *name) error {
	position := uint32(0)
	var before Position
	for k := n.waiters.head; k != nil; k = k.next {
		c := k.claim
		position++
		if err := m.checkLink(n, k); err != nil {
			return err
		}
		if c.granted || m.session(c.session.id) != c.session {
			return fmt.Errorf("machine: waiter %v of %q is granted, or its session is over", c.id(), n.text)
		}
		if !before.less(c.at) {
			return fmt.Errorf("machine: waiter %v of %q came at %v and stands behind one of %v", c.id(), n.text, c.at, before)
		}
		before = c.at
		if got := n.waiters.position(k); got != position {
			return fmt.Errorf("machine: waiter %v of %q has position %d, walking gives %d", c.id(), n.text, got, position)
		}
	}
	if int(position) != n.waiters.n {
		return fmt.Errorf("machine: %q has %d waiters, walking gives %d", n.text, n.waiters.n, position)
	}
	if position > 0 && m.fits(n.waiters.head.claim) {
		return fmt.Errorf("machine: waiter %v of %q could be granted", n.waiters.head.claim.id(), n.text)
	}
	return nil
}

// checkLink checks that the claim at this place is known to its session.
func (m *Machine) checkLink(n *name, k *link) error {
	c := k.claim
	s := c.session
	known := s.find(c.seq) == c && m.session(s.id) == s
	if c.closing {
		known = s.findClosing(c.seq) == c && (m.session(s.id) == s || m.leaving(s.id) == s)
	}
	if !known {
		return fmt.Errorf("machine: claim %v at %q is unknown to its session", c.id(), n.text)
	}
	if k.name != n || c.spec.Capacity != n.capacity {
		return fmt.Errorf("machine: claim %v does not fit the name %q", c.id(), n.text)
	}
	return nil
}

// less reports whether p comes before q in the log.
func (p Position) less(q Position) bool {
	return p.Index < q.Index || p.Index == q.Index && p.N < q.N
}
