package lead

import "github.com/lockstep-dev/lockstep/server/command"

// origins counts the sessions of each address, so that one client cannot take everything that a
// cluster has. A leader counts the sessions opened while it leads, and those it hears from:
// sessions of the previous leader are counted again as their clients attach or renew them, so those
// that nobody renews are not counted until they end.
type origins struct {
	of     map[command.SessionID]string
	left   map[command.SessionID]string // sessions that have ended, but for closing claims
	count  map[string]int               // sessions, and those that are being opened
	shares shares
}

func newOrigins() origins {
	return origins{of: make(map[command.SessionID]string), left: make(map[command.SessionID]string), count: make(map[string]int)}
}

// heard counts a session that is not counted yet.
func (o *origins) heard(id command.SessionID, address string) {
	if _, known := o.of[id]; !known && address != "" {
		o.count[address]++
		o.of[id] = address
	}
}

// opened completes what opening began.
func (o *origins) opened(id command.SessionID, address string, ok bool) {
	switch {
	case address == "":
	case ok:
		o.of[id] = address
	default:
		o.less(address)
	}
}

// over counts a session as ended. While it has closing claims they belong to its address.
func (o *origins) over(id command.SessionID, leaving bool) {
	address, known := o.of[id]
	if !known {
		return
	}
	delete(o.of, id)
	o.less(address)
	if leaving {
		o.left[id] = address
	}
}

func (o *origins) less(address string) {
	if o.count[address]--; o.count[address] == 0 {
		delete(o.count, address)
	}
}

// full returns the refusal of a session that an address would have too many, or nil.
func (o *origins) full(address string, most int) *command.Result {
	if o.count[address] < most {
		return nil
	}
	full := tooMany("sessions", address, most)
	return &full
}

// opening counts a session that is being opened.
func (o *origins) opening(address string) {
	if address != "" {
		o.count[address]++
	}
}

// settled forgets a session that has ended once its last closing claim is over.
func (o *origins) settled(id command.SessionID) { delete(o.left, id) }
