package redlock

import "github.com/lockstep-dev/lockstep"

// maxNodes bounds the masters of one Locker: see Config.
const maxNodes = 9

// majority is the smallest number such that any two sets of that many nodes, out of count, have one
// in common.
func majority(count int) int { return count/2 + 1 }

// A phase is how far an attempt has come.
type phase uint8

const (
	reading phase = iota // step 1: nodes are asked to grant, and to report their counters
	raising              // step 2: the nodes that were read are asked to raise their counters
	won
	failed
)

// A standing is what an attempt knows of one node.
type standing uint8

const (
	asked   standing = iota // it was asked to grant and has not answered: it may hold our value
	missed                  // it certainly did not receive our request
	refused                 // it has another holder's lock
	read                    // it granted and reported its counter
	raised                  // read, and step 2 found our lock still there and raised the counter to our token
	gone                    // read, and step 2 found our lock gone
)

// An attempt is one try to get one lock from all nodes: the votes and their outcome. It reads no
// clock, does no I/O and has no mutex. It can be compared and copied: the exhaustive test explores
// everything that can happen to it.
//
// Events may come in any order and more than once. An answer that arrives after its step has ended
// changes nothing: the reading of a node that was not counted in step 1 is not necessarily below
// the token.
type attempt struct {
	count    int // number of nodes
	phase    phase
	nodes    [maxNodes]standing
	counters [maxNodes]lockstep.Token // of the nodes that are read
	token    lockstep.Token           // of step 2
}

func newAttempt(count int) attempt { return attempt{count: count} }

// granted records that the node has granted and reported its counter, in step 1.
func (a *attempt) granted(node int, counter lockstep.Token) {
	if a.phase != reading || a.nodes[node] != asked || counter >= lockstep.MaxToken {
		return // there is no token above such a counter: that node's clock is beyond the year 2092
	}
	a.nodes[node], a.counters[node] = read, counter
}

// declined records that another holder's lock is on the node.
func (a *attempt) declined(node int) { a.settle(node, asked, refused) }

// unreached records that the request certainly had no effect on the node.
func (a *attempt) unreached(node int) { a.settle(node, asked, missed) }

// confirmed records that the node has found our lock and raised its counter to the token, in step
// 2.
func (a *attempt) confirmed(node int) {
	if a.phase == raising {
		a.settle(node, read, raised)
	}
}

// vanished records that the node did not find our lock in step 2.
func (a *attempt) vanished(node int) { a.settle(node, read, gone) }

func (a *attempt) settle(node int, from, to standing) {
	if a.nodes[node] == from {
		a.nodes[node] = to
	}
}

// decided reports whether further answers cannot change the outcome of the current step. They can
// still add nodes to it.
func (a *attempt) decided() bool {
	need, have, open := majority(a.count), a.tally(read), a.tally(asked)
	if a.phase == raising {
		have, open = a.tally(raised), a.tally(read)
	}
	return have >= need || have+open < need
}

// beginRaise ends step 1. With a majority read it returns the nodes that step 2 must ask and the
// token to raise their counters to; otherwise the attempt has failed and it returns none.
func (a *attempt) beginRaise() (nodes []int, token lockstep.Token) {
	if a.phase != reading {
		return nil, 0
	}
	nodes = a.standing(read)
	if len(nodes) < majority(a.count) {
		a.phase = failed
		return nil, 0
	}
	for _, node := range nodes {
		a.token = max(a.token, a.counters[node])
	}
	a.token++
	a.phase = raising
	return nodes, a.token
}

// finish ends step 2 and reports whether the lock is ours, with the token.
func (a *attempt) finish() bool {
	if a.phase == raising {
		a.phase = failed
		if a.tally(raised) >= majority(a.count) {
			a.phase = won
		}
	}
	return a.phase == won
}

// mayHold returns the nodes that may have our value, which must be undone if the attempt fails.
func (a *attempt) mayHold() []int { return a.standing(asked, read, raised) }

// standing returns the nodes with one of the standings.
func (a *attempt) standing(wanted ...standing) (nodes []int) {
	for node, s := range a.nodes[:a.count] {
		for _, w := range wanted {
			if s == w {
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}

// tally counts the nodes with a standing.
func (a *attempt) tally(wanted standing) (n int) {
	for _, s := range a.nodes[:a.count] {
		if s == wanted {
			n++
		}
	}
	return n
}

// A tally counts the nodes' answers to a yes/no question, such as whether a record was extended.
type tally struct{ count, yes, no int }

// hear counts one answer.
func (t *tally) hear(yes bool) {
	if yes {
		t.yes++
	} else {
		t.no++
	}
}

// carried reports whether a majority said yes.
func (t tally) carried() bool { return t.yes >= majority(t.count) }

// rejected reports whether so many said no that a majority for yes is impossible.
func (t tally) rejected() bool { return t.count-t.no < majority(t.count) }

// answered reports whether a majority has answered.
func (t tally) answered() bool { return t.yes+t.no >= majority(t.count) }
