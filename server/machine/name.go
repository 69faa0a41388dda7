package machine

import (
	"cmp"
	"slices"
)

// A name is a lock or a semaphore that has a holder or a waiter. Without either
// there is no name: it costs nothing and its mode is open.
type name struct {
	text      string
	hash      uint64
	waiters   queue
	holders   list
	capacity  uint32 // of a semaphore; 0 for a lock
	used      uint64 // permits held
	exclusive int    // exclusive holders: 0 or 1

	pending bool   // in Machine.work: its queue is to be tried
	touched uint64 // index of the last entry that changed it
	gone    bool   // no longer in the table
}

// A link is the place of one claim at one of its names: in the queue, or among the
// holders.
type link struct {
	name       *name
	claim      *claim
	prev, next *link
	arrival    uint64 // place in the queue's numbering
}

// A list is a doubly linked list of links. The zero value is empty.
type list struct {
	head, tail *link
	n          int
}

func (l *list) push(k *link) {
	k.prev, k.next = l.tail, nil
	if l.tail == nil {
		l.head = k
	} else {
		l.tail.next = k
	}
	l.tail = k
	l.n++
}

func (l *list) pushFront(k *link) {
	k.prev, k.next = nil, l.head
	if l.head == nil {
		l.tail = k
	} else {
		l.head.prev = k
	}
	l.head = k
	l.n++
}

func (l *list) remove(k *link) {
	if k.prev == nil {
		l.head = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		l.tail = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next = nil, nil
	l.n--
}

// A queue is a list that knows the position of each link without walking: every
// waiter has an arrival number, and holes are the numbers, in order, of those behind the head
// that left before their turn.
type queue struct {
	list
	arrivals uint64
	holes    []uint64
}

// minHoles is how many holes a queue may have before they are worth counting; above, the
// queue is numbered anew when there are twice as many holes as waiters.
const minHoles = 64

func (q *queue) push(k *link) {
	if mutantLIFO {
		q.list.pushFront(k)
		q.renumber()
		return
	}
	q.arrivals++
	k.arrival = q.arrivals
	q.list.push(k)
}

func (q *queue) remove(k *link) {
	first, last := k == q.head, k == q.tail
	q.list.remove(k)
	switch {
	case first:
		q.dropHoles()
	case last:
		q.arrivals = q.tail.arrival
		q.trimHoles()
	default:
		at, _ := slices.BinarySearch(q.holes, k.arrival)
		q.holes = slices.Insert(q.holes, at, k.arrival)
		if len(q.holes) > minHoles && len(q.holes) > 2*q.n {
			q.renumber()
		}
	}
}

// dropHoles forgets the holes before the new head.
func (q *queue) dropHoles() {
	if len(q.holes) == 0 {
		return
	}
	if q.head == nil {
		q.holes = nil
		return
	}
	at, _ := slices.BinarySearch(q.holes, q.head.arrival)
	q.holes = q.holes[at:]
}

// trimHoles forgets the holes behind the new tail, whose numbers are given again.
func (q *queue) trimHoles() {
	at, _ := slices.BinarySearch(q.holes, q.arrivals)
	q.holes = q.holes[:at]
}

// renumber gives the waiters the numbers from 1 on. It walks the queue, but only after
// as many removals as there are waiters.
func (q *queue) renumber() {
	q.arrivals, q.holes = 0, nil
	for k := q.head; k != nil; k = k.next {
		q.arrivals++
		k.arrival = q.arrivals
	}
}

// position is k's place in the queue. The next one has position 1.
func (q *queue) position(k *link) uint32 {
	before, _ := slices.BinarySearch(q.holes, k.arrival)
	return uint32(k.arrival - q.head.arrival + 1 - uint64(before))
}

func (n *name) empty() bool { return n.waiters.n == 0 && n.holders.n == 0 }

// matches reports whether a claim of this mode may use the name while others do.
func (n *name) matches(s *Spec) bool {
	if n.empty() {
		return true
	}
	return n.capacity == s.Capacity
}

// takes reports whether the name could be granted now to a claim that is first in line.
func (n *name) takes(s *Spec) bool {
	switch s.Mode {
	case Exclusive:
		return n.holders.n == 0
	case Shared:
		return n.exclusive == 0
	default:
		return n.used+uint64(s.Weight) <= uint64(s.Capacity)
	}
}

// hold puts a granted claim among the holders.
func (n *name) hold(k *link) {
	n.holders.push(k)
	switch s := &k.claim.spec; s.Mode {
	case Exclusive:
		n.exclusive++
	case Permits:
		n.used += uint64(s.Weight)
	}
}

// free takes a holder away.
func (n *name) free(k *link) {
	n.holders.remove(k)
	switch s := &k.claim.spec; s.Mode {
	case Exclusive:
		n.exclusive--
	case Permits:
		n.used -= uint64(s.Weight)
	}
}

// sharedToken is the token of the live shared holders, or zero without one. All of
// them have the same. The token of a closing holder is not given to others.
func (n *name) sharedToken() Token {
	for k := n.holders.tail; k != nil; k = k.prev {
		if c := k.claim; c.spec.Mode == Shared && !c.closing {
			return c.token
		}
	}
	return 0
}

// A table is a map that gives its memory back. A Go map never shrinks, and a
// burst of a million names would be paid for until the next restart.
type table[K cmp.Ordered | SessionID, V any] struct {
	m    map[K]V
	peak int // the largest size since the map was made
}

func (t *table[K, V]) put(k K, v V) {
	if t.m == nil {
		t.m = make(map[K]V)
	}
	t.m[k] = v
	t.peak = max(t.peak, len(t.m))
}

// minPeak is the size of a table below which shrinking it saves nothing. There are
// 256 tables of each kind.
const minPeak = 16

func (t *table[K, V]) remove(k K) {
	delete(t.m, k)
	if t.peak < minPeak || len(t.m) > t.peak/4 {
		return
	}
	m := make(map[K]V, len(t.m))
	for k, v := range t.m { // the order in which a map is copied is seen by nobody
		m[k] = v
	}
	t.m, t.peak = m, len(m)
}

// shardCount is the number of parts of the session table and of the name table. A snapshot
// is captured part by part.
const shardCount = 256

func shardOf(id SessionID) int { return int(id[len(id)-1]) } // a random byte

// find returns the name, or nil when nobody holds it or waits for it.
func (m *Machine) find(text string, hash uint64) *name {
	return m.names[hash%shardCount].m[text]
}

// use returns the name for a claim that holds it or waits for it from now on.
func (m *Machine) use(n *name, text string, hash uint64, s *Spec) *name {
	if n == nil {
		n = &name{text: text, hash: hash}
		m.names[hash%shardCount].put(text, n)
		m.order.ReplaceOrInsert(n)
		m.counts.Names++
	}
	n.capacity = s.Capacity
	m.mark(n)
	return n
}

// mark remembers that the entry changed the name, for CheckTouched.
func (m *Machine) mark(n *name) {
	if n.touched != m.index {
		n.touched = m.index
		m.touched = append(m.touched, n)
	}
}

// try puts the name on the list of those whose queues are tried by settle.
func (m *Machine) try(n *name) {
	m.mark(n)
	if !n.pending {
		n.pending = true
		m.work = append(m.work, n)
	}
}

// settle grants what can be granted after a change: the heads of the touched queues, in
// the order in which the names were touched, until none fits. Each round of the
// inner loop takes a waiter out of its queues, which bounds it.
func (m *Machine) settle() {
	for i := 0; i < len(m.work); i++ { // a grant puts further names on the list
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

// fits is the grant rule: first in the queues of all its names, and all of them can take it.
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

// drop deletes a name without holder and waiter.
func (m *Machine) drop(n *name) {
	n.gone = true
	m.names[n.hash%shardCount].remove(n.text)
	m.order.Delete(n)
	m.counts.Names--
}
