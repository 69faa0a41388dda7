package redlock

import "github.com/lockstep-dev/lockstep"

// maxNodes bounds the masters of one Locker: see Config.
const maxNodes = 9

// majority is how many of count nodes any two sets of that size have one in common.
func majority(count int) int { return count/2 + 1 }

// A phase is how far an attempt has come.
type phase uint8

const (
	reading phase = iota // step 1: nodes are asked to grant, and to tell their counters
	raising              // step 2: those that were read are asked to raise them
	won
	failed
)

// A standing is what an attempt knows of one node.
type standing uint8

const (
	asked   standing = iota // it was asked to grant and has not answered: it may hold our value
	missed                  // it certainly did not get what we asked
	refused                 // another's lock is there
	read                    // it granted and told its counter
	raised                  // read, and step 2 found our lock still there and raised the counter to our token
	gone                    // read, and step 2 found that our lock was not there any more
)

// An attempt is one try to get one lock from all nodes: the votes, and what they come to. It reads
// no clock, does no I/O and has no lock of its own. It can be compared and copied: the exhaustive
// test explores all that can befall it.
//
// Events may come in any order and more than once. An answer that comes after its step has ended
// changes nothing: the reading of a node that was not counted in step 1 is not below the token.
type attempt struct {
	count    int // of nodes
	phase    phase
	nodes    [maxNodes]standing
	counters [maxNodes]lockstep.Token // of the nodes that are read
	token    lockstep.Token           // of step 2
}

func newAttempt(count int) attempt { return attempt{count: count} }

// granted notes that the node has granted and told its counter, in step 1.
func (a *attempt) granted(node int, counter lockstep.Token) {
	if a.phase != reading || a.nodes[node] != asked || counter >= lockstep.MaxToken {
		return // no token fits above such a counter: that node's clock is beyond the year 2092
	}
	a.nodes[node], a.counters[node] = read, counter
}

// declined notes that another's lock is on the node.
func (a *attempt) declined(node int) { a.settle(node, asked, refused) }

// unreached notes that the request certainly had no effect on the node.
func (a *attempt) unreached(node int) { a.settle(node, asked, missed) }

// confirmed notes that the node has found our lock and raised its counter to the token, in step 2.
func (a *attempt) confirmed(node int) {
	if a.phase == raising {
		a.settle(node, read, raised)
	}
}

// vanished notes that the node did not find our lock in step 2.
func (a *attempt) vanished(node int) { a.settle(node, read, gone) }

func (a *attempt) settle(node int, from, to standing) {
	if a.nodes[node] == from {
		a.nodes[node] = to
	}
}

// decided reports whether more answers cannot change how the present step ends. They still can add
// nodes to it.
func (a *attempt) decided() bool {
	need, have, open := majority(a.count), a.tally(read), a.tally(asked)
	if a.phase == raising {
		have, open = a.tally(raised), a.tally(read)
	}
	return have >= need || have+open < need
}

// beginRaise ends step 1. With a majority read it gives the nodes that step 2 has to ask and the
// token to raise their counters to; otherwise the attempt has failed and it gives none.
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

// mayHold are the nodes on which our value may be, and has to be undone when the attempt has
// failed.
func (a *attempt) mayHold() []int { return a.standing(asked, read, raised) }

// standing are the nodes with one of the standings.
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

// tally counts the nodes of a standing.
func (a *attempt) tally(wanted standing) (n int) {
	for _, s := range a.nodes[:a.count] {
		if s == wanted {
			n++
		}
	}
	return n
}

// A tally is what nodes have answered to a question with yes or no, such as whether a record was
// extended.
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

// rejected reports whether so many said no that no majority for yes is left.
func (t tally) rejected() bool { return t.count-t.no < majority(t.count) }

// answered reports whether a majority has answered at all.
func (t tally) answered() bool { return t.yes+t.no >= majority(t.count) }
