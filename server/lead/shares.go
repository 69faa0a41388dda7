package lead

import (
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// One address has at most this part of the claims and of the bytes that all clients may have
// together, so that one client cannot leave nothing for the others.
const shareOfAddress = 2

// A share is what the sessions of one address have.
type share struct{ claims, bytes int }

// shares has the share of each address. Counting visits every session, so it is done only while
// more than one share is in use, which no address can exceed before, and not again for a while.
type shares struct {
	of      map[string]*share
	recount Time // not before this
}

// recountAfter keeps counting, which takes about 0.3 µs a session, below some 3 % of the leader's
// time.
func recountAfter(sessions int) time.Duration {
	return 100*time.Millisecond + time.Duration(sessions)*10*time.Microsecond
}

// countShares counts the shares of the addresses of all known sessions.
func (o *origins) countShares(m *machine.Machine) {
	o.shares.of = make(map[string]*share, len(o.count))
	for _, sessions := range [...]map[command.SessionID]string{o.of, o.left} {
		for id, address := range sessions { // in any order: these are sums
			s := o.share(address)
			claims, bytes := m.Usage(id)
			s.claims += claims
			s.bytes += bytes
		}
	}
}

func (o *origins) share(address string) *share {
	s := o.shares.of[address]
	if s == nil {
		s = new(share)
		o.shares.of[address] = s
	}
	return s
}

// check refuses what would be one claim too many for the address that the session belongs to, or
// too many bytes. What it does not refuse it counts.
func (o *origins) check(session command.SessionID, c command.Command, m *machine.Machine, now Time) (command.Result, bool) {
	limits := m.Limits()
	address := o.of[session]
	claims, bytes := m.Adds(c)
	mostClaims, mostBytes := int(limits.ClaimsTotal)/shareOfAddress, int(limits.StateBytes)/shareOfAddress
	if address == "" || bytes == 0 || !limits.Sums() || !m.Counts().Exceed(mostClaims-claims, mostBytes-bytes) {
		return command.Result{}, true
	}
	if now >= o.shares.recount {
		o.countShares(m)
		o.shares.recount = now + Time(recountAfter(len(o.of)+len(o.left)))
	}
	s := o.share(address)
	switch {
	case s.claims+claims > mostClaims:
		return tooMany("claims", address, mostClaims), false
	case s.bytes+bytes > mostBytes:
		return tooMany("bytes of sessions and claims", address, mostBytes), false
	}
	s.claims += claims
	s.bytes += bytes
	return command.Result{}, true
}

func tooMany(what, address string, most int) command.Result {
	return command.Result{Code: command.QuotaExceeded, Limit: fmt.Sprintf("%s of clients at %s: at most %d", what, address, most)}
}
