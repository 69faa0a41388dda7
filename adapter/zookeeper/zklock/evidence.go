package zklock

import (
	"sync"
	"time"
)

// maxBeats bounds the remembered beats: those within the time of a report, which is at most 0.275
// of the timeout, with at most one per half of beatEvery. That makes 14.
const maxBeats = 32

// evidence tracks a time at or after which ZooKeeper's leader has certainly heard from a session.
//
// The leader hears from a session when it is opened, and when a connection takes it over, because
// the follower asks the leader. After that it learns what the follower reports in its answers to
// the leader's pings. Reports and forwarded writes travel the same way, in order. So if a confirmed
// write was sent at least reportWithin after a beat was answered on the same connection, a report
// with that beat reached the leader before the write did. A follower that gets another leader
// closes its connections first.
type evidence struct {
	mu         sync.Mutex
	timing     timing
	certain    time.Duration // on the clock of the lease
	connection uint64        // counts the connections of the session
	beats      []beat        // of this connection, oldest first
}

// A beat is a request of the session and its answer.
type beat struct{ sent, answered time.Duration }

// connected records that a server has taken the session over; sent is when it was asked to.
func (e *evidence) connected(sent time.Duration, t timing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timing = t
	e.connection++
	e.certain = max(e.certain, sent)
	e.beats = e.beats[:0]
}

// present is the connection in use. A request that was sent and answered while it is in use went
// over it.
func (e *evidence) present() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.connection
}

// beat records an answered request, unless there is one of about the same time.
func (e *evidence) beat(connection uint64, b beat) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if connection != e.connection || len(e.beats) > 0 && b.answered < e.beats[len(e.beats)-1].answered+e.timing.beatEvery()/2 {
		return
	}
	if len(e.beats) == maxBeats {
		e.beats = append(e.beats[:0], e.beats[1:]...)
	}
	e.beats = append(e.beats, b)
}

// wrote records a confirmed write, and returns the time from which it renews the session.
func (e *evidence) wrote(connection uint64, sent time.Duration) (since time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if connection != e.connection {
		return e.certain
	}
	for _, b := range e.beats {
		if b.answered <= sent-e.timing.reportWithin() {
			e.certain = max(e.certain, b.sent)
		}
	}
	return e.certain
}
