package replica

import "github.com/lockstep-dev/lockstep/server/machine"

// origins counts the sessions of each address, so that one client cannot take everything that a
// cluster has. A leader counts the sessions opened while it leads, and those it hears from:
// sessions of the previous leader are counted again as their clients attach or renew them, so those
// that nobody renews are not counted until they end.
type origins struct {
	of     map[machine.SessionID]string
	left   map[machine.SessionID]string // sessions that have ended, but for closing claims
	count  map[string]int               // sessions, and those that are being opened
	shares shares
}

func newOrigins() origins {
	return origins{of: make(map[machine.SessionID]string), left: make(map[machine.SessionID]string), count: make(map[string]int)}
}

// heard counts a session that is not counted yet.
func (o *origins) heard(id machine.SessionID, address string) {
	if _, known := o.of[id]; !known && address != "" {
		o.count[address]++
		o.of[id] = address
	}
}

// opened completes what opening began.
func (o *origins) opened(id machine.SessionID, address string, ok bool) {
	switch {
	case address == "":
	case ok:
		o.of[id] = address
	default:
		o.less(address)
	}
}

// over counts a session as ended. While it has closing claims they belong to its address.
func (o *origins) over(id machine.SessionID, leaving bool) {
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

// open proposes a session, unless there are too many in total or for its address.
func (r *Replica) open(q *Request, b Open, has proof) {
	command := r.openCommand(&b)
	if res, ok := r.machine.Check(command); !ok {
		r.refuseOrHold(q, r.refusal(&res), has)
		return
	}
	if r.rising() { // the log would have the secret after the entry up to which it is purged
		r.refuse(q, Overloaded)
		return
	}
	o, address := &r.lead.origins, q.From.Address
	if o.count[address] >= r.cfg.SessionsPerAddress {
		full := tooMany("sessions", address, r.cfg.SessionsPerAddress)
		r.reply(q.Stream, q.Tag, q.Session, r.refusal(&full))
		return
	}
	if r.enqueue(q, &pending{limited: true, attach: b.Attach, address: address, secret: b.Secret, command: command}) && address != "" {
		o.count[address]++
	}
}
