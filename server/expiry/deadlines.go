package expiry

import (
	"container/heap"
	"time"
)

// Deadlines is a set of keys with one deadline each. The zero value is empty. Set, Drop and
// removing a due key cost O(log n); moving a deadline later costs O(1) until its old time has come.
type Deadlines[K comparable] struct {
	items map[K]*item[K]
	heap  queue[K]
	seq   uint64
}

type item[K comparable] struct {
	key   K
	at    time.Duration
	place time.Duration // its time in the heap; place <= at
	seq   uint64        // of the last Set: equal deadlines keep their order
	index int
}

// Len returns the number of keys.
func (d *Deadlines[K]) Len() int { return len(d.items) }

// Set gives key the deadline at, replacing any earlier one.
func (d *Deadlines[K]) Set(key K, at time.Duration) {
	d.seq++
	it, ok := d.items[key]
	switch {
	case !ok:
		if d.items == nil {
			d.items = make(map[K]*item[K])
		}
		it = &item[K]{key: key, at: at, place: at, seq: d.seq}
		d.items[key] = it
		heap.Push(&d.heap, it)
	case at < it.place:
		it.at, it.place, it.seq = at, at, d.seq
		heap.Fix(&d.heap, it.index)
	default:
		// Most deadlines are moved later by a keepalive and never come. They are moved in the heap
		// only when their old place is reached.
		it.at, it.seq = at, d.seq
		heap.Fix(&d.heap, it.index)
	}
}

// At returns the deadline of key.
func (d *Deadlines[K]) At(key K) (at time.Duration, ok bool) {
	it, ok := d.items[key]
	if !ok {
		return 0, false
	}
	return it.at, true
}

// Drop removes key. Dropping a key that has no deadline does nothing.
func (d *Deadlines[K]) Drop(key K) {
	if it, ok := d.items[key]; ok {
		heap.Remove(&d.heap, it.index)
		delete(d.items, key)
	}
}

// Next removes and returns the first key whose deadline is at or before due.
func (d *Deadlines[K]) Next(due time.Duration) (key K, ok bool) {
	for len(d.heap) > 0 && d.heap[0].place <= due {
		it := d.heap[0]
		if it.at > it.place {
			it.place = it.at
			heap.Fix(&d.heap, 0)
			continue
		}
		heap.Pop(&d.heap)
		delete(d.items, it.key)
		return it.key, true
	}
	return key, false
}

type queue[K comparable] []*item[K]

func (q queue[K]) Len() int { return len(q) }

func (q queue[K]) Less(i, j int) bool {
	if q[i].place != q[j].place {
		return q[i].place < q[j].place
	}
	return q[i].seq < q[j].seq
}

func (q queue[K]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue[K]) Push(x any) {
	it := x.(*item[K])
	it.index = len(*q)
	*q = append(*q, it)
}

func (q *queue[K]) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return it
}
