package machine

import "slices"

// A link is the place of one claim at one of its names: in the queue, or among the holders.
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

// A queue is a list that knows the position of each link without walking: every waiter has an
// arrival number, and holes are the numbers, in order, of the waiters after the head that left
// before their turn.
type queue struct {
	list
	arrivals uint64
	holes    []uint64
}

// minHoles is the number of holes up to which counting them is not worthwhile. Above it, the queue
// is renumbered when it has twice as many holes as waiters.
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

// trimHoles forgets the holes after the new tail, whose numbers are assigned again.
func (q *queue) trimHoles() {
	at, _ := slices.BinarySearch(q.holes, q.arrivals)
	q.holes = q.holes[:at]
}

// renumber numbers the waiters from 1. It walks the queue, but only after as many removals as there
// are waiters.
func (q *queue) renumber() {
	q.arrivals, q.holes = 0, nil
	for k := q.head; k != nil; k = k.next {
		q.arrivals++
		k.arrival = q.arrivals
	}
}

// position returns k's place in the queue. The next claim to be granted has position 1.
func (q *queue) position(k *link) uint32 {
	before, _ := slices.BinarySearch(q.holes, k.arrival)
	return uint32(k.arrival - q.head.arrival + 1 - uint64(before))
}
