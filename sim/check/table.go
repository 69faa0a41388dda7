package check

import (
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A claim is the book's own record of a claim. It is kept forever.
type claim struct {
	id      command.ClaimID
	spec    command.Spec
	state   command.State
	code    command.Code // of a refusal; state is then zero
	token   command.Token
	held    bool          // among the holders of its names: granted, or over but still closing
	since   time.Duration // true time at which it was queued, or began to close
	counted time.Duration // service counted by then
	over    uint64        // the change of its session that reported its end; 0: none did
	// unsafe marks a grant that an operator ended with --now: its holder may believe in it for up
	// to a TTL.
	unsafe bool
}

// A name is a lock or a semaphore with its holders and its queue.
type name struct {
	text    string
	holders []*claim
	queue   []*claim
}

// A session is the book's own record of a session. It is kept forever.
type session struct {
	id       command.SessionID
	ttl      command.Millis
	numbered bool // by its client
	ended    command.Code
	change   uint64
	heard    time.Duration // true time of its opening, or of the last confirmed renewal
	kept     bool          // it was renewed
	counted  time.Duration // service counted by then
	claims   map[uint64]*claim
	nonces   map[string]uint64 // the claim that each one made
	order    []*claim          // in the order in which they were made
}

// A table is the lock table according to the book.
type table struct {
	sessions map[command.SessionID]*session
	opened   []*session // in the order in which they were opened
	names    map[string]*name
	order    []*name // in order of first use
	top      command.Token
	floor    bool          // a token floor was set
	now      time.Duration // true time
	event    uint64        // number of the last event
	service  tally
}

// begin returns the time for whatever begins now, and the service counted by then.
func (t *table) begin() (since, counted time.Duration) { return t.now, t.service.counted(t.now) }

func newTable() *table {
	return &table{sessions: map[command.SessionID]*session{}, names: map[string]*name{}}
}

func (t *table) name(text string) *name {
	n, ok := t.names[text]
	if !ok {
		n = &name{text: text}
		t.names[text] = n
		t.order = append(t.order, n)
	}
	return n
}

func (t *table) claim(id command.ClaimID) *claim {
	if s := t.sessions[id.Session]; s != nil {
		return s.claims[id.Seq]
	}
	return nil
}

// fits reports whether the name can take the claim now, ignoring the queue.
func (n *name) fits(c *claim) bool {
	used := c.spec.Weight
	for _, h := range n.holders {
		switch {
		case c.spec.Mode == command.Permits:
			used += h.spec.Weight
		case c.spec.Mode == command.Exclusive || h.spec.Mode == command.Exclusive:
			return false
		}
	}
	return c.spec.Mode != command.Permits || used <= c.spec.Capacity
}

// suits reports whether the claim is of the kind that the name is in use as.
func (n *name) suits(s *command.Spec) bool {
	same := func(o *claim) bool {
		return (o.spec.Mode == command.Permits) == (s.Mode == command.Permits) && o.spec.Capacity == s.Capacity
	}
	return !slices.ContainsFunc(n.holders, func(o *claim) bool { return !same(o) }) &&
		!slices.ContainsFunc(n.queue, func(o *claim) bool { return !same(o) })
}

// ready reports whether the claim is first in all its queues and fits everywhere.
func (t *table) ready(c *claim) bool {
	for _, text := range c.spec.Names {
		n := t.name(text)
		if len(n.queue) == 0 || n.queue[0] != c || !n.fits(c) {
			return false
		}
	}
	return true
}

// firstReady returns a claim that must be granted now according to the rule, or nil.
func (t *table) firstReady() *claim {
	for _, n := range t.order {
		if len(n.queue) > 0 && t.ready(n.queue[0]) {
			return n.queue[0]
		}
	}
	return nil
}

// settle grants until no head fits, and returns what was granted. The set does not depend on the
// order: a grant takes room only from names whose head it was.
func (t *table) settle() []*claim {
	var granted []*claim
	for c := t.firstReady(); c != nil; c = t.firstReady() {
		t.dequeue(c)
		c.state, c.held = command.Granted, true
		for _, text := range c.spec.Names {
			n := t.name(text)
			n.holders = append(n.holders, c)
		}
		granted = append(granted, c)
	}
	return granted
}

func (t *table) enqueue(c *claim) {
	c.state, c.since = command.Queued, t.now
	for _, text := range c.spec.Names {
		n := t.name(text)
		n.queue = append(n.queue, c)
	}
}

func (t *table) dequeue(c *claim) {
	for _, text := range c.spec.Names {
		n := t.name(text)
		n.queue = slices.DeleteFunc(n.queue, func(o *claim) bool { return o == c })
	}
}

// free removes the claim from the holders of its names.
func (t *table) free(c *claim) {
	c.held = false
	for _, text := range c.spec.Names {
		n := t.name(text)
		n.holders = slices.DeleteFunc(n.holders, func(o *claim) bool { return o == c })
	}
}
