package machine

import "github.com/lockstep-dev/lockstep/server/command"

// A name is a lock or a semaphore that has a holder or a waiter. Without either it does not exist:
// it costs nothing and its mode is open.
type name struct {
	text      string
	hash      uint64
	waiters   queue
	holders   list
	capacity  uint32 // of a semaphore; 0 for a lock
	used      uint64 // permits held
	exclusive int    // exclusive holders: 0 or 1

	pending bool   // in Machine.work: its queue will be tried
	touched uint64 // index of the last entry that changed it
	gone    bool   // no longer in the table
}

func (n *name) empty() bool { return n.waiters.n == 0 && n.holders.n == 0 }

// matches reports whether a claim of this mode may use the name while others do.
func (n *name) matches(s *command.Spec) bool {
	if n.empty() {
		return true
	}
	return n.capacity == s.Capacity
}

// takes reports whether the name can be granted now to a claim that is first in line.
func (n *name) takes(s *command.Spec) bool {
	switch s.Mode {
	case command.Exclusive:
		return n.holders.n == 0
	case command.Shared:
		return n.exclusive == 0
	default:
		return n.used+uint64(s.Weight) <= uint64(s.Capacity)
	}
}

// hold adds a granted claim to the holders.
func (n *name) hold(k *link) {
	n.holders.push(k)
	switch s := &k.claim.spec; s.Mode {
	case command.Exclusive:
		n.exclusive++
	case command.Permits:
		n.used += uint64(s.Weight)
	}
}

// free removes a holder.
func (n *name) free(k *link) {
	n.holders.remove(k)
	switch s := &k.claim.spec; s.Mode {
	case command.Exclusive:
		n.exclusive--
	case command.Permits:
		n.used -= uint64(s.Weight)
	}
}

// sharedToken returns the token of the live shared holders, or zero if there are none. All of them
// have the same token. The token of a closing holder is not given to others.
func (n *name) sharedToken() command.Token {
	for k := n.holders.tail; k != nil; k = k.prev {
		if c := k.claim; c.spec.Mode == command.Shared && !c.closing {
			return c.token
		}
	}
	return 0
}

// find returns the name, or nil when nobody holds it or waits for it.
func (m *Machine) find(text string, hash uint64) *name {
	return m.names[hash%nameTables].m[text]
}

// use returns the name for a claim that is about to hold it or wait for it.
func (m *Machine) use(n *name, text string, hash uint64, s *command.Spec) *name {
	if n == nil {
		n = &name{text: text, hash: hash}
		m.names[hash%nameTables].put(text, n)
		m.order.ReplaceOrInsert(n)
		m.counts.Names++
	}
	n.capacity = s.Capacity
	m.mark(n)
	return n
}

// mark records that the entry changed the name, for CheckTouched.
func (m *Machine) mark(n *name) {
	if n.touched != m.index {
		n.touched = m.index
		m.touched = append(m.touched, n)
	}
}

// drop deletes a name that has neither holders nor waiters.
func (m *Machine) drop(n *name) {
	n.gone = true
	m.names[n.hash%nameTables].remove(n.text)
	m.order.Delete(n)
	m.counts.Names--
}
