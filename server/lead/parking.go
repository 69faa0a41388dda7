package lead

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockstep-dev/lockstep/server/command"
)

const (
	// maxParked bounds the requests of one session parked behind its Attach.
	maxParked = 1_024
	// maxParkedAll bounds the parked requests of all sessions.
	maxParkedAll = 65_536
)

// A parkKey is a session attaching to a stream.
type parkKey struct {
	stream  StreamID
	session command.SessionID
}

func (q *Request) parkKey() parkKey { return parkKey{q.Stream, q.Session} }

// parking has the requests that arrived after an Attach that is waiting for its round.
type parking struct {
	of    map[parkKey][]Request
	count int // number of requests in it
}

// open parks what comes after an Attach.
func (p *parking) open(key parkKey) {
	if p.of == nil {
		p.of = make(map[parkKey][]Request)
	}
	p.of[key] = nil
}

// isOpen reports whether an Attach is waiting.
func (p *parking) isOpen(key parkKey) bool {
	_, open := p.of[key]
	return open
}

// park queues a request behind the Attach of its session. It returns false when too many are
// waiting.
func (p *parking) park(q Request) bool {
	key := q.parkKey()
	if len(p.of[key]) >= maxParked || p.count >= maxParkedAll {
		return false
	}
	p.count++
	p.of[key] = append(p.of[key], q)
	return true
}

// clear removes and returns what is parked behind an Attach.
func (p *parking) clear(key parkKey) []Request {
	waiting := p.of[key]
	delete(p.of, key)
	p.count -= len(waiting)
	return waiting
}

// all returns the parked requests, in the order of their streams and sessions.
func (p *parking) all() (waiting []Request) {
	for _, key := range slices.SortedFunc(maps.Keys(p.of), compareParkKeys) {
		waiting = append(waiting, p.of[key]...)
	}
	return waiting
}

func compareParkKeys(a, b parkKey) int {
	return cmp.Or(cmp.Compare(a.stream, b.stream), compareIDs(a.session, b.session))
}
