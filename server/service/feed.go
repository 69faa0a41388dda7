package service

import (
	"sync"

	"github.com/lockstep-dev/lockstep/server/machine"
)

const (
	// feedEvents and feedBytes bound what a feed keeps: 13 s of history at 5,000 grants per second, each with
	// its release. A watcher that is farther behind cannot be served.
	feedEvents = 131_072
	feedBytes  = 64 << 20
)

// A Feed keeps the newest events that a node has applied, for those who watch. Make it with NewFeed, give it to
// Config.Feed, and have the node call Add.
type Feed struct {
	mu struct {
		sync.Mutex
		events []machine.Event // numbers without a gap; those before start are gone
		start  int
		bytes  int
		more   chan struct{} // closed by the next Add; nil while nobody waits
	}
}

// NewFeed makes an empty feed.
func NewFeed() *Feed { return &Feed{} }

// Add takes in the events of a turn. It is called on the node's loop and does not block. When events were
// skipped, because a snapshot took their place, the feed begins anew.
func (f *Feed) Add(events []machine.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range events {
		if n := len(f.mu.events); n > 0 && f.mu.events[n-1].Number+1 != events[i].Number {
			f.mu.events, f.mu.start, f.mu.bytes = nil, 0, 0
		}
		f.mu.events = append(f.mu.events, events[i])
		f.mu.bytes += eventBytes(&events[i])
	}
	f.trimLocked()
	if f.mu.more != nil {
		close(f.mu.more)
		f.mu.more = nil
	}
}

// eventBytes is about what an event takes.
func eventBytes(e *machine.Event) int {
	n := 192 + len(e.Name) + len(e.By) + len(e.Reason)
	for _, l := range e.Metadata {
		n += 32 + len(l.Key) + len(l.Value)
	}
	return n
}

// trimLocked drops the oldest events above the bounds. f.mu must be held.
func (f *Feed) trimLocked() {
	for len(f.mu.events)-f.mu.start > 1 && (f.mu.bytes > feedBytes || len(f.mu.events)-f.mu.start > feedEvents) {
		f.mu.bytes -= eventBytes(&f.mu.events[f.mu.start])
		f.mu.events[f.mu.start] = machine.Event{}
		f.mu.start++
	}
	if f.mu.start > len(f.mu.events)/2 { // each event is moved once on average
		f.mu.events = append([]machine.Event(nil), f.mu.events[f.mu.start:]...)
		f.mu.start = 0
	}
}

// A page is what a feed has behind a number.
type page struct {
	events []machine.Event // a copy
	oldest uint64          // the lowest number behind which all events are there
	gone   bool            // some of the events asked for are not
	more   <-chan struct{} // closed when there are others; nil if events were returned
}

// after returns at most limit events behind the number. base is the number of the last event that the node had
// applied when it was asked, for a feed that has none yet.
func (f *Feed) after(number, base uint64, limit int) page {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.mu.events[f.mu.start:]
	p := page{oldest: base}
	if len(kept) > 0 {
		p.oldest = kept[0].Number - 1
	}
	if number < p.oldest {
		p.gone = true
		return p
	}
	if skip := number - p.oldest; skip < uint64(len(kept)) {
		kept = kept[skip:]
		p.events = append(p.events, kept[:min(limit, len(kept))]...)
		return p
	}
	if f.mu.more == nil {
		f.mu.more = make(chan struct{})
	}
	p.more = f.mu.more
	return p
}

// last is the number of the newest event; base for a feed that has none yet.
func (f *Feed) last(base uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.mu.events); n > 0 {
		return f.mu.events[n-1].Number
	}
	return base
}
