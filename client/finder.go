package client

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A finder chooses the node to try next. It starts at a random place in the list, so that clients
// spread out. It follows the nodes' hints about the leader, and otherwise goes around the list.
type finder struct {
	endpoints []string
	at        int
	tried     int // since the last success or round
	hint      string
	hops      int                      // hints followed in a row
	failed    map[string]time.Duration // when a node was last unreachable
}

// maxHops bounds how many hints are followed in a row: two nodes may each believe that the other is
// the leader.
const maxHops = 3

// hintRest is how long hints to an unreachable node are ignored: followers name a dead leader until
// they have elected another.
const hintRest = time.Second

func newFinder(endpoints []string) *finder {
	return &finder{
		endpoints: slices.Clone(endpoints),
		at:        rand.IntN(len(endpoints)),
		failed:    make(map[string]time.Duration),
	}
}

// next returns the node to try. round means that all nodes have been tried without success, so the
// caller should wait first.
func (f *finder) next() (addr string, round bool) {
	if f.hint != "" {
		addr, f.hint = f.hint, ""
		return addr, false
	}
	f.at = (f.at + 1) % len(f.endpoints)
	f.tried++
	f.hops = 0
	if f.tried > len(f.endpoints) {
		f.tried = 1
		round = true
	}
	return f.endpoints[f.at], round
}

// unreachable records that the node did not answer.
func (f *finder) unreachable(now time.Duration, addr string) {
	if len(f.failed) >= 2*maxEndpoints {
		clear(f.failed) // hints may name any number of nodes
	}
	f.failed[addr] = now
}

// leads records that a node named another as the leader.
func (f *finder) leads(now time.Duration, addr string) {
	if addr == "" || f.hops >= maxHops || checkEndpoint(addr) != nil {
		return
	}
	if at, ok := f.failed[addr]; ok && now < at+hintRest {
		return
	}
	f.hops++
	f.hint = addr
}

// rested records that the caller has waited, which starts a new round.
func (f *finder) rested() { f.tried = 0 }

// hinted reports whether the next node is one that another named.
func (f *finder) hinted() bool { return f.hint != "" }

// found records that the node serves.
func (f *finder) found(addr string) {
	f.tried, f.hops = 0, 0
	delete(f.failed, addr)
	if i := slices.Index(f.endpoints, addr); i >= 0 {
		f.at = i
	}
}
