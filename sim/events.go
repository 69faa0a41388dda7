package sim

import (
	"container/heap"
	"fmt"
	"time"
)

// maxEvents bounds the events of one second of simulated time. Five nodes and six clients have some
// 10,000 per second; more than this means that something feeds itself.
const maxEvents = 200_000

// An event is something that happens at a moment of true time.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// A schedule is the queue of future events, ordered by (time, sequence).
type schedule struct {
	events eventHeap
	seq    uint64
	now    time.Duration
	ran    int
	second time.Duration // the current second
	inIt   int           // number of events that ran in it
}

// at schedules do for the time t, or for now if t is past.
func (s *schedule) at(t time.Duration, do func()) {
	s.seq++
	heap.Push(&s.events, event{max(t, s.now), s.seq, do})
}

// after schedules do for d from now.
func (s *schedule) after(d time.Duration, do func()) { s.at(s.now+d, do) }

// step runs the next event if it is due by the time until, and reports whether it was.
func (s *schedule) step(until time.Duration) bool {
	if len(s.events) == 0 || s.events[0].at > until {
		s.now = max(s.now, until)
		return false
	}
	e := heap.Pop(&s.events).(event)
	s.now = e.at
	s.bound()
	e.do()
	return true
}

// bound counts the event that is about to run.
func (s *schedule) bound() {
	s.ran++
	if second := s.now.Truncate(time.Second); second != s.second {
		s.second, s.inIt = second, 0
	}
	if s.inIt++; s.inIt > maxEvents {
		panic(fmt.Sprintf("sim: more than %d events in the second from %v on", maxEvents, s.second))
	}
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}
