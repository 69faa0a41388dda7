package audit

import (
	"sync"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A queue holds the events waiting for the file, in the order of their numbers. It is safe for
// concurrent use.
type queue struct {
	limit int // number of events; never changes
	mu    struct {
		sync.Mutex
		events []command.Event
		seen   uint64 // number of the last event that was added or did not fit
	}
}

// add appends events, all or none. Those that do not fit are missing in the file until a peer is
// asked for them.
func (q *queue) add(events []command.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(events) > 0 {
		q.mu.seen = max(q.mu.seen, events[len(events)-1].Number)
	}
	if len(q.mu.events)+len(events) <= q.limit {
		q.mu.events = append(q.mu.events, events...)
	}
}

// next drops the events before the number want, and takes at most limit consecutive events from
// there on. If it takes none, front is the number of the first event left, or of the next event
// expected if newer ones did not fit, or 0.
func (q *queue) next(want uint64, limit int) (taken []command.Event, front uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.mu.events
	for len(events) > 0 && events[0].Number < want {
		events = events[1:]
	}
	n := 0
	for n < min(len(events), limit) && events[n].Number == want+uint64(n) {
		n++
	}
	taken, q.mu.events = events[:n:n], events[n:]
	switch {
	case n > 0:
	case len(events) > 0:
		front = events[0].Number
	case q.mu.seen >= want:
		front = q.mu.seen + 1
	}
	if len(q.mu.events) == 0 {
		q.mu.events = nil // release the memory
	}
	return taken, front
}
