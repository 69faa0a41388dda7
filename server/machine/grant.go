package machine

import "github.com/lockstep-dev/lockstep/server/command"

// try puts the name on the list of names whose queues settle will try.
func (m *Machine) try(n *name) {
	m.mark(n)
	if !n.pending {
		n.pending = true
		m.work = append(m.work, n)
	}
}

// settle grants what can be granted after a change: it tries the heads of the touched queues, in
// the order in which the names were touched, until none fits. Each round of the inner loop takes a
// waiter out of its queues, which bounds the loop.
func (m *Machine) settle() {
	for i := 0; i < len(m.work); i++ { // a grant adds further names to the list
		n := m.work[i]
		n.pending = false
		for n.waiters.n > 0 && m.fits(n.waiters.head.claim) {
			m.grantWaiter(n.waiters.head.claim)
		}
	}
	for _, n := range m.work {
		if n.empty() && !n.gone {
			m.drop(n)
		}
	}
	clear(m.work)
	m.work = m.work[:0]
}

// fits is the grant rule: the claim is first in the queues of all its names, and all of them can
// take it.
func (m *Machine) fits(c *claim) bool {
	if !m.ready() {
		return false
	}
	for i := range c.links {
		k := &c.links[i]
		if k.name.waiters.head != k || !k.name.takes(&c.spec) {
			return false
		}
	}
	return true
}

// grant gives all names to a claim that is in no list.
func (m *Machine) grant(c *claim) {
	c.token = 0
	if c.spec.Mode == command.Shared {
		c.token = c.links[0].name.sharedToken()
	}
	if c.token == 0 {
		c.token = m.nextToken
		if !mutantToken {
			m.nextToken++
		}
	}
	m.grants++
	c.order = m.grants
	c.granted = true
	c.since = m.wall
	for i := range c.links {
		c.links[i].name.hold(&c.links[i])
	}
	m.counts.Holders++
	m.held.add(c)
	m.record(command.EventGranted, c, "", "")
}

// grantWaiter grants a queued claim. It leaves its queues, whose next heads are tried too.
func (m *Machine) grantWaiter(c *claim) {
	m.changing(c.session.id)
	m.unqueue(c)
	m.grant(c)
	m.changed(c)
}

// unqueue removes a claim from all its queues and stops its wait timer.
func (m *Machine) unqueue(c *claim) {
	for i := range c.links {
		k := &c.links[i]
		k.name.waiters.remove(k)
		m.try(k.name)
	}
	m.counts.Waiters--
	if c.spec.HasWait {
		m.timer(command.WaitOver, c.id(), 0)
	}
}

// free removes a claim from the holders of all its names.
func (m *Machine) free(c *claim) {
	for i := range c.links {
		k := &c.links[i]
		k.name.free(k)
		m.try(k.name)
	}
	m.counts.Holders--
	m.held.remove(c)
}

// changed reports to the owner of a live claim a change that it did not cause.
func (m *Machine) changed(c *claim) {
	s := c.session
	s.change++
	c.change = s.change
	m.out.Changes = append(m.out.Changes, command.Change{Session: s.id, Number: s.change, Claim: c.status()})
}
