package replica

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// origins count the sessions of each address, so that one client cannot take all that a cluster has. A leader counts what was opened
// while it leads and what it hears of: the sessions of the leader before are counted again as their clients attach or renew
// them, so those that nobody renews are not, until they end.
type origins struct {
	of    map[machine.SessionID]string
	count map[string]int // sessions, and those that are being opened
}

func newOrigins() origins {
	return origins{of: make(map[machine.SessionID]string), count: make(map[string]int)}
}

// heard counts a session that is not counted yet.
func (o *origins) heard(id machine.SessionID, address string) {
	if _, known := o.of[id]; !known && address != "" {
		o.count[address]++
		o.of[id] = address
	}
}

// opened ends what opening began.
func (o *origins) opened(id machine.SessionID, address string, ok bool) {
	switch {
	case address == "":
	case ok:
		o.of[id] = address
	default:
		o.less(address)
	}
}

// over forgets a session.
func (o *origins) over(id machine.SessionID) {
	if address, known := o.of[id]; known {
		delete(o.of, id)
		o.less(address)
	}
}

func (o *origins) less(address string) {
	if o.count[address]--; o.count[address] == 0 {
		delete(o.count, address)
	}
}

// open proposes a session, unless there are too many in all or of its address.
func (r *Replica) open(q *Request, b Open, has proof) {
	command := r.openCommand(&b)
	if res, ok := r.machine.Check(command); !ok {
		r.refuseOrHold(q, r.refusal(&res), has)
		return
	}
	o, address := &r.lead.origins, q.From.Address
	if o.count[address] >= r.cfg.SessionsPerAddress {
		limit := fmt.Sprintf("sessions of clients at %s: at most %d", address, r.cfg.SessionsPerAddress)
		r.reply(q.Stream, q.Tag, q.Session, Refused{Reason: RefusedByMachine, Code: machine.QuotaExceeded, Limit: limit})
		return
	}
	if r.enqueue(q, &pending{limited: true, attach: b.Attach, address: address, secret: b.Secret, command: command}) && address != "" {
		o.count[address]++
	}
}
