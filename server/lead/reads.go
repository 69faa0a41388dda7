package lead

import "time"

// readsATurn is about how long the reads of one turn may take; the last one may exceed it.
// Commands, keepalives and peers wait meanwhile, and a grant needs a few turns.
const readsATurn = 2 * time.Millisecond

// isRead reports whether a request only reads. It is the only request of its stream, so it may be
// answered after others that arrived later.
func isRead(b Body) bool {
	switch b.(type) {
	case ReadLock, ReadLocks, ReadSessions, ReadHistory:
		return true
	}
	return false
}

// reads are the reads that may be answered. Connections take turns, one read each, so that one with
// hundreds of reads does not delay another that has a single one.
type reads struct {
	turns []uint64 // connections with reads, the next one first
	lists map[uint64][]held
}

func (q *reads) add(h held) {
	if q.lists == nil {
		q.lists = make(map[uint64][]held)
	}
	key := h.From.Connection
	if len(q.lists[key]) == 0 {
		q.turns = append(q.turns, key)
	}
	q.lists[key] = append(q.lists[key], h)
}

func (q *reads) empty() bool { return len(q.turns) == 0 }

// next removes the oldest read of the connection whose turn it is.
func (q *reads) next() held {
	key := q.turns[0]
	q.turns = q.turns[1:]
	list := q.lists[key]
	h := list[0]
	if list = list[1:]; len(list) == 0 {
		delete(q.lists, key)
	} else {
		q.lists[key] = list
		q.turns = append(q.turns, key)
	}
	return h
}

// all returns the waiting reads, connection by connection.
func (q *reads) all() (items []held) {
	for _, key := range q.turns {
		items = append(items, q.lists[key]...)
	}
	return items
}
