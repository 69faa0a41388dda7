package redlock

import (
	"fmt"
	"slices"

	"github.com/lockstep-dev/lockstep"
)

// The model is a set of nodes, clients and a network in which anything can happen: requests are
// delivered late, twice or never, answers are lost, clients give up at any time, records expire,
// nodes restart. The clients run the real attempt; the nodes do in Go what the scripts do. A client
// makes one attempt, since each attempt has its own random value.
//
// Time is two bits per client: whether, by its own clock, the lease that began when it first sent
// is over, and the one that began with the renewal. A record cannot expire before that, since the
// lease begins with the send, unless a node's clock jumps. So the model explores all orders that
// clocks of any speed allow, without counting ticks.
//
// A node that is down, or that restarted with its stored data, differs from a healthy one only by
// lost messages. Those losses are explored: a message may never be delivered. Equivalent events are
// left out: an answer that is not a grant is like a late one, a client that gives up is like one
// that waits, and a record that is undone is like one that expires; it may do so as soon as its
// client has given up.

const (
	modelNodes   = 3
	modelClients = 3 // at most
)

// rules say what the model should do wrong, so that it can be seen to be caught, and which events
// it includes.
type rules struct {
	clients    int
	forgets    int8 // node restarts that lose the stored data
	duplicates bool // the network delivers a request of one client's step 1 twice
	renewals   bool // one client renews its lease, once
	settled    bool // the first client has already won at the start, on two of the nodes
	givingUp   bool // clients may give up early
	floor      bool // readings are at least what the clock says

	countSilent   bool // step 2 counts nodes whose answer to step 1 was lost
	noCheck       bool // step 2 raises without looking for our lock
	secretAlone   bool // step 2 compares the secret and not the reading
	deleteAny     bool // undoing deletes whatever is there
	ignoreTime    bool // a grant that comes after the lease is trusted
	clockJumps    bool // records expire at any time
	renewByOneYes bool // a renewal is confirmed by one node
}

// A modelNode is what a node stores.
type modelNode struct {
	holder           int8 // the client whose record is there, from 1; 0 is none
	reading, counter uint8
	renewed          bool // the record was extended by the renewal
}

// A modelClient is one client with its single attempt.
type modelClient struct {
	attempt  attempt
	begun    bool
	held     bool  // the Locker gave the lock to its user, who has not released it
	done     bool  // it has given up or released the lock: its records on nodes are being undone
	first    bool  // the lease that began when it first sent is over
	second   bool  // the lease that began with the renewal is over
	floor    uint8 // the largest token that was won before it began
	take     [modelNodes]uint8
	raise    [modelNodes]bool
	renewing bool
	renewed  bool
	extend   [modelNodes]bool
	extended [modelNodes]bool // nodes whose yes has arrived
}

// valid reports whether the client trusts that it holds the lock.
func (c *modelClient) valid() bool {
	return c.held && (!c.first || c.renewed && !c.second)
}

// A modelState is a snapshot of everything. It holds no pointers: assigning copies it.
type modelState struct {
	nodes    [modelNodes]modelNode
	clients  [modelClients]modelClient
	forgets  int8
	twice    bool // a client has started one of whose requests is delivered twice
	renewing bool // a client has sent its renewal

}

// A move is one event: the state after it, and the promise that it broke, if any.
type move struct {
	state modelState
	said  said
	broke string
}

// said names a move for the report.
type said struct {
	what         string
	client, node int
}

func (s said) String() string {
	return fmt.Sprintf("client %d node %d: %s", s.client+1, s.node+1, s.what)
}

// moves returns everything that can happen next. It reuses the slice.
func (r *rules) moves(s *modelState, room []move) []move {
	m := moving{rules: r, from: s, found: room[:0]}
	for c := range r.clients {
		m.ofClient(c)
		for n := range modelNodes {
			m.deliveries(c, n)
		}
	}
	for n := range modelNodes {
		m.ofNode(n)
	}
	return m.found
}

// moving collects the moves from one state.
type moving struct {
	*rules
	from  *modelState
	found []move
}

// do adds the move that change makes to the state.
func (m *moving) do(what string, c, n int, change func(*modelState) (broke string)) {
	m.found = append(m.found, move{state: *m.from, said: said{what, c, n}})
	next := &m.found[len(m.found)-1]
	if next.broke = change(&next.state); next.broke == "" {
		next.broke = next.state.broken()
	}
}

// broken is the promise of exclusion.
func (s *modelState) broken() string {
	holders := 0
	for c := range s.clients {
		if s.clients[c].valid() {
			holders++
		}
	}
	if holders > 1 {
		return brokenExclusion
	}
	return ""
}

const (
	brokenExclusion = "two clients hold the lock"
	brokenTokens    = "a token is not above those before it"
)

// ofClient adds the steps that a client takes by itself.
func (m *moving) ofClient(c int) {
	k := &m.from.clients[c]
	switch {
	case !k.begun:
		m.do("begin", c, -1, func(s *modelState) string { s.begin(c, 1); return "" })
		if m.duplicates && !m.from.twice {
			m.do("begin, delivered twice", c, -1, func(s *modelState) string { s.begin(c, 2); s.twice = true; return "" })
		}
		return
	case k.done:
		return
	case k.attempt.phase == reading && (m.countSilent || k.attempt.tally(read) >= majority(modelNodes)):
		m.do("end step 1", c, -1, func(s *modelState) string { s.endReading(c, m.rules); return "" })
	case k.attempt.phase == raising && k.attempt.tally(raised) >= majority(modelNodes):
		m.do("end step 2", c, -1, func(s *modelState) string { return s.endRaising(c, m.rules) })
	case k.valid():
		m.do("release", c, -1, func(s *modelState) string { s.clients[c].giveUp(); return "" })
	}
	if m.givingUp && k.attempt.phase < won {
		m.do("give up", c, -1, func(s *modelState) string { s.clients[c].giveUp(); return "" })
	}
	if !k.first {
		m.do("lease over", c, -1, func(s *modelState) string { s.clients[c].first = true; return "" })
	}
	m.renewal(c, k)
}

// giveUp ends the client's attempt. Its records on the nodes are undone sooner or later.
func (c *modelClient) giveUp() { c.done, c.held, c.first, c.second = true, false, true, true }

func (m *moving) renewal(c int, k *modelClient) {
	if !m.renewals {
		return
	}
	if k.valid() && !m.from.renewing {
		m.do("send renewal", c, -1, func(s *modelState) string {
			s.renewing, s.clients[c].renewing, s.clients[c].extend = true, true, [modelNodes]bool{true, true, true}
			return ""
		})
	}
	if k.renewing && k.first && !k.second {
		m.do("renewed lease over", c, -1, func(s *modelState) string { s.clients[c].second = true; return "" })
	}
	need := majority(modelNodes)
	if m.renewByOneYes {
		need = 1
	}
	if t := (tally{count: modelNodes, yes: count(k.extended)}); k.valid() && !k.renewed && (t.carried() || t.yes >= need) {
		m.do("renewal confirmed", c, -1, func(s *modelState) string { s.clients[c].confirmRenewal(); return "" })
	}
}

// confirmRenewal sets the record again on the nodes that may not have it.
func (c *modelClient) confirmRenewal() {
	c.renewed = true
	for n := range modelNodes {
		if !c.extended[n] {
			c.take[n] = 1
		}
	}
}

func count(votes [modelNodes]bool) (n int) {
	for _, yes := range votes {
		if yes {
			n++
		}
	}
	return n
}

// deliveries adds what the network can deliver from a client to a node, with the answer. A lost
// answer is one that the client does not wait for.
func (m *moving) deliveries(c, n int) {
	k, node := &m.from.clients[c], m.from.nodes[n]
	if k.take[n] > 0 && node.holder == 0 {
		m.do("take", c, n, func(s *modelState) string { s.deliverTake(c, n, m.rules); return "" })
	}
	if k.raise[n] && m.rules.raises(m.from, c, n) {
		m.do("raise", c, n, func(s *modelState) string { s.deliverRaise(c, n); return "" })
	}
	if m.deleteAny && k.done && node.holder != 0 {
		m.do("delete", c, n, func(s *modelState) string { s.nodes[n].holder = 0; return "" })
	}
	if k.extend[n] {
		m.do("extend", c, n, func(s *modelState) string {
			s.clients[c].extend[n] = false
			if s.nodes[n].holder == int8(c+1) {
				s.nodes[n].renewed, s.clients[c].extended[n] = true, true
			}
			return ""
		})
	}
}

// ofNode adds the steps of a node: its record expires, or it restarts without its data.
func (m *moving) ofNode(n int) {
	node := m.from.nodes[n]
	if node.holder != 0 {
		k := m.from.clients[node.holder-1]
		if m.clockJumps || k.done || !node.renewed && k.first || k.second {
			m.do("record runs out", int(node.holder)-1, n, func(s *modelState) string { s.nodes[n].holder = 0; return "" })
		}
	}
	if m.from.forgets < m.forgets && (node.holder != 0 || node.counter != 0) {
		m.do("forgets", -1, n, func(s *modelState) string {
			s.nodes[n] = modelNode{}
			s.forgets++
			return ""
		})
	}
}

// greatest returns the largest token won.
func (s *modelState) greatest() (t uint8) {
	for c := range s.clients {
		if a := &s.clients[c].attempt; a.phase == won {
			t = max(t, uint8(a.token))
		}
	}
	return t
}

func (s *modelState) begin(c int, deliveries uint8) {
	k := &s.clients[c]
	k.begun, k.floor = true, s.greatest()
	k.take = [modelNodes]uint8{deliveries, 1, 1}
}

// deliverTake does what the script of step 1 does. A correct clock is above all tokens ever issued.
func (s *modelState) deliverTake(c, n int, r *rules) {
	k, node := &s.clients[c], &s.nodes[n]
	k.take[n]--
	if node.holder == 0 {
		counter := node.counter
		if r.floor {
			for other := range s.clients {
				counter = max(counter, uint8(s.clients[other].attempt.token))
			}
		}
		node.holder, node.reading, node.renewed = int8(c+1), counter, false
	}
	k.attempt.granted(n, lockstep.Token(node.reading))
}

func (s *modelState) endReading(c int, r *rules) {
	k := &s.clients[c]
	if r.countSilent {
		for _, n := range k.attempt.standing(asked) {
			k.attempt.granted(n, 0)
		}
	}
	nodes, _ := k.attempt.beginRaise()
	for _, n := range nodes {
		k.raise[n] = true
	}
}

// raises reports whether the script of step 2 finds what it looks for.
func (r *rules) raises(s *modelState, c, n int) bool {
	node := s.nodes[n]
	ours := node.holder == int8(c+1)
	return r.noCheck || ours && (r.secretAlone || r.countSilent || lockstep.Token(node.reading) == s.clients[c].attempt.counters[n])
}

func (s *modelState) deliverRaise(c, n int) {
	k, node := &s.clients[c], &s.nodes[n]
	k.raise[n] = false
	node.counter = max(node.counter, uint8(k.attempt.token))
	k.attempt.confirmed(n)
}

// endRaising ends step 2. The Locker trusts a grant only while the lease that began when it first
// sent lasts.
func (s *modelState) endRaising(c int, r *rules) (broke string) {
	k := &s.clients[c]
	if !k.attempt.finish() {
		panic("the attempt has not won with a majority raised")
	}
	switch {
	case r.ignoreTime:
		k.held, k.first = true, false
	case k.first:
		k.giveUp()
	default:
		k.held = true
	}
	return s.tokenBroken(c)
}

// tokenBroken checks the token of a client that has won. It exceeds all tokens won before its
// attempt began and equals no other, whatever the clocks do.
func (s *modelState) tokenBroken(c int) string {
	k := &s.clients[c]
	token := uint8(k.attempt.token)
	for other := range s.clients {
		o := &s.clients[other]
		if other == c || o.attempt.phase != won {
			continue
		}
		if token <= k.floor || token == uint8(o.attempt.token) {
			return brokenTokens
		}
	}
	return ""
}

// A breach is a broken promise and the events that led to it.
type breach struct {
	what string
	path []said
}

// beginning returns the initial state.
func (r *rules) beginning() (s modelState) {
	for c := range r.clients {
		s.clients[c].attempt = newAttempt(modelNodes)
	}
	if !r.settled {
		return s
	}
	s.begin(0, 1)
	s.clients[0].take[2] = 0 // it is lost
	s.deliverTake(0, 0, r)
	s.deliverTake(0, 1, r)
	s.endReading(0, r)
	s.deliverRaise(0, 0)
	s.deliverRaise(0, 1)
	s.endRaising(0, r)
	return s
}

// explore walks breadth first through all reachable states, at most limit of them, until one of the
// promises is broken. whole means that all were seen.
func explore(r rules, limit int, promises ...string) (states int, found *breach, whole bool) {
	type visit struct {
		state  *modelState // nil once visited
		parent int
		said   said
	}
	first := r.beginning()
	visits := []visit{{&first, -1, said{}}}
	seen := map[stateKey]struct{}{keyOf(&first, r.clients): {}}
	var next []move
	for at := 0; at < len(visits); at++ {
		if len(visits) > limit {
			return len(visits), nil, false
		}
		next = r.moves(visits[at].state, next)
		visits[at].state = nil
		for i := range next {
			m := &next[i]
			if slices.Contains(promises, m.broke) {
				path := []said{m.said}
				for i := at; i > 0; i = visits[i].parent {
					path = append(path, visits[i].said)
				}
				slices.Reverse(path)
				return len(visits), &breach{m.broke, path}, false
			}
			key := keyOf(&m.state, r.clients)
			if _, known := seen[key]; !known {
				seen[key] = struct{}{}
				state := m.state
				visits = append(visits, visit{&state, at, m.said})
			}
		}
	}
	return len(visits), nil, true
}
