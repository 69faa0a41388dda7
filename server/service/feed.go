package service

import (
	"slices"
	"sync"

	"github.com/lockstep-dev/lockstep/server/command"
)

const (
	// feedEvents and feedBytes bound what a feed keeps: 13 s of history at 5,000 grants per second,
	// each with its release. A watcher that is further behind cannot be served.
	feedEvents = 131_072
	feedBytes  = 64 << 20
)

// A Feed keeps the newest events that a node has applied, for watchers. Create it with NewFeed, set
// it as Config.Feed, and have the node call Add.
type Feed struct {
	mu struct {
		sync.Mutex
		parts []part // oldest first; the numbers of all their events have no gap
		count int
		bytes int
		more  chan struct{} // closed by the next Add; nil while nobody waits
	}
}

// A part has events that are dropped together, so that nothing is ever moved on the node's loop.
type part struct {
	events []command.Event // at least one
	bytes  int
}

// Limits of a part: the number of its events, and the number of bytes from which it gets no more.
const (
	partEvents = 1_024
	partBytes  = 1 << 20
)

// NewFeed returns an empty feed.
func NewFeed() *Feed { return &Feed{} }

// Add adds the events of a turn. It is called on the node's loop and does not block. If events were
// skipped, because a snapshot took their place, the feed starts over.
func (f *Feed) Add(events []command.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range events {
		f.addLocked(&events[i])
	}
	f.trimLocked()
	if f.mu.more != nil {
		close(f.mu.more)
		f.mu.more = nil
	}
}

// addLocked appends one event. f.mu must be held.
func (f *Feed) addLocked(e *command.Event) {
	if last := f.lastLocked(); last != 0 && last+1 != e.Number {
		f.mu.parts, f.mu.count, f.mu.bytes = nil, 0, 0
	}
	n := len(f.mu.parts)
	if n == 0 || len(f.mu.parts[n-1].events) >= partEvents || f.mu.parts[n-1].bytes >= partBytes {
		f.mu.parts = append(f.mu.parts, part{})
		n++
	}
	p, size := &f.mu.parts[n-1], eventBytes(e)
	p.events = append(p.events, *e)
	p.bytes += size
	f.mu.bytes += size
	f.mu.count++
}

// lastLocked returns the number of the newest event, zero if there is none. f.mu must be held.
func (f *Feed) lastLocked() uint64 {
	if n := len(f.mu.parts); n > 0 {
		events := f.mu.parts[n-1].events
		return events[len(events)-1].Number
	}
	return 0
}

// eventBytes returns about how much memory an event takes.
func eventBytes(e *command.Event) int {
	n := 192 + len(e.Name) + len(e.By) + len(e.Reason)
	for _, l := range e.Metadata {
		n += 32 + len(l.Key) + len(l.Value)
	}
	return n
}

// trimLocked drops the oldest parts while the feed exceeds its bounds. f.mu must be held.
func (f *Feed) trimLocked() {
	drop := 0
	for drop < len(f.mu.parts)-1 && (f.mu.bytes > feedBytes || f.mu.count > feedEvents) {
		f.mu.bytes -= f.mu.parts[drop].bytes
		f.mu.count -= len(f.mu.parts[drop].events)
		drop++
	}
	f.mu.parts = slices.Delete(f.mu.parts, 0, drop)
}

// A page is what a feed has after a number.
type page struct {
	events []command.Event // a copy
	oldest uint64          // the lowest number after which no event is missing
	gone   bool            // some of the requested events are gone
	more   <-chan struct{} // closed when there are more; nil if events were returned
}

// after returns at most limit events after the number. base is the number of the last event that
// the node had applied when it was asked; it is used while the feed has no events yet.
func (f *Feed) after(number, base uint64, limit int) page {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := page{oldest: f.oldestLocked(base)}
	if number < p.oldest {
		p.gone = true
		return p
	}
	// Most watchers are near the end.
	for i := len(f.mu.parts) - 1; i >= 0 && f.lastLocked() > number; i-- {
		if first := f.mu.parts[i].events[0].Number; first <= number+1 {
			rest := f.mu.parts[i].events[number+1-first:]
			p.events = slices.Clone(rest[:min(limit, len(rest))])
			return p
		}
	}
	if f.mu.more == nil {
		f.mu.more = make(chan struct{})
	}
	p.more = f.mu.more
	return p
}

// oldestLocked returns the lowest number after which no event is missing. f.mu must be held.
func (f *Feed) oldestLocked(base uint64) uint64 {
	if len(f.mu.parts) > 0 {
		return f.mu.parts[0].events[0].Number - 1
	}
	return base
}

// bounds returns the lowest number after which no event is missing and the number of the newest
// event; both are base while the feed has no events yet.
func (f *Feed) bounds(base uint64) (oldest, last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.oldestLocked(base), max(f.lastLocked(), base)
}
