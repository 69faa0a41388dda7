package client

import "time"

// An Observer is notified of events in a client. It is called without any lock held, from several
// goroutines, and should return soon.
type Observer interface{ Observe(Event) }

// An Event is something that happened.
type Event struct {
	Kind     EventKind
	Endpoint string        // with Connected and Disconnected
	Session  string        // public id, with SessionOpened and SessionOver
	Name     string        // first name of the claim, with Acquired, Lost and Released
	Took     time.Duration // from the call to its outcome, with Acquired
	Err      error         // with Disconnected, SessionOver, Acquired and Lost; nil is success
}

// An EventKind is the kind of an Event.
type EventKind int

// The kinds of events.
const (
	Connected EventKind = iota + 1
	Disconnected
	SessionOpened
	SessionOver
	Renewed
	Acquired
	Lost
	Released
)

func (k EventKind) String() string {
	names := [...]string{"none", "connected", "disconnected", "session opened", "session over", "renewed", "acquired", "lost", "released"}
	if k < 0 || int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

type noObserver struct{}

func (noObserver) Observe(Event) {}
