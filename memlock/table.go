package memlock

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// maxWaiters bounds the queue of one name, as the service does.
const maxWaiters = 16384

// A state is the state of a claim in the space. The holder may not know it yet.
type state int

const (
	outside state = iota // not in the table: not yet, or no longer
	waiting
	granted
	closing // taken away, but still blocking others
)

// A claim is one request for one lock. The Space's mutex guards it.
type claim struct {
	cfg     lockstep.AcquireConfig
	session *session
	state   state
	token   lockstep.Token
	since   time.Time // when it entered this state

	// What the holder still has to learn, or already knows.
	loss *lockstep.LossError // why the space took a granted claim away
	err  error               // why the space refused a waiting claim

	answered  chan struct{}   // closed when Acquire may read lock and err
	lock      *lock           // the holder's side, once notified of the grant
	abandoned bool            // the holder wants it undone but could not reach the space yet
	orphaned  bool            // its Acquire waits for a new session
	ending    *time.Timer     // of a closing claim
	handle    lockstep.Handle // once it was detached
}

// A queue holds the claims of one name. Names without claims have none.
type queue struct{ holders, waiters []*claim }

// A table holds the claims of all names and the rule for granting them: no claim overtakes another.
// A claim enters the queues of all its names at once, and is granted when it is the first in each
// and each name can take it.
type table struct {
	queues map[string]*queue
	next   lockstep.Token // of the next exclusive grant
}

func newTable() table { return table{queues: map[string]*queue{}, next: 1} }

// add puts the claim at the end of its queues. It does not grant anything: see settle.
func (t *table) add(c *claim, now time.Time) error {
	for _, name := range c.cfg.Names {
		if err := t.admits(name, c); err != nil {
			return err
		}
	}
	for _, name := range c.cfg.Names {
		q := t.queues[name]
		if q == nil {
			q = &queue{}
			t.queues[name] = q
		}
		q.waiters = append(q.waiters, c)
	}
	c.state, c.since, c.token = waiting, now, 0
	return nil
}

func (t *table) admits(name string, c *claim) error {
	q := t.queues[name]
	if q == nil {
		return nil
	}
	if len(q.waiters) >= maxWaiters {
		return fmt.Errorf("%w: %d claims wait for %s", lockstep.ErrQuota, maxWaiters, name)
	}
	if capacity := q.capacity(); capacity != c.cfg.Capacity {
		return fmt.Errorf("%w: %s is %s, not %s", lockstep.ErrMode, name, kind(capacity), kind(c.cfg.Capacity))
	}
	return nil
}

func kind(capacity int) string {
	if capacity == 0 {
		return "a lock"
	}
	return fmt.Sprintf("a semaphore of %d", capacity)
}

// capacity is the capacity of the semaphore, or zero for a lock. All claims of a queue agree.
func (q *queue) capacity() int {
	for _, c := range slices.Concat(q.holders, q.waiters) {
		return c.cfg.Capacity
	}
	return 0
}

// remove removes the claim from its queues, wherever it is.
func (t *table) remove(c *claim) {
	if c.state == outside {
		return
	}
	for _, name := range c.cfg.Names {
		q := t.queues[name]
		q.holders = without(q.holders, c)
		q.waiters = without(q.waiters, c)
		if len(q.holders)+len(q.waiters) == 0 {
			delete(t.queues, name)
		}
	}
	c.state = outside
}

func without(claims []*claim, c *claim) []*claim {
	return slices.DeleteFunc(claims, func(other *claim) bool { return other == c })
}

// settle grants the claims that can be granted after a change to the names, and returns them in the
// order of their grants. A grant frees the head of its queues, so their new heads are tried too.
func (t *table) settle(now time.Time, names ...string) []*claim {
	var grants []*claim
	touched := slices.Clone(names)
	for len(touched) > 0 {
		name := touched[0]
		q := t.queues[name]
		if q == nil || len(q.waiters) == 0 || !t.grantable(q.waiters[0]) {
			touched = touched[1:]
			continue
		}
		c := q.waiters[0]
		t.grant(c, now)
		grants = append(grants, c)
		touched = append(touched, c.cfg.Names...)
	}
	return grants
}

func (t *table) grantable(c *claim) bool {
	for _, name := range c.cfg.Names {
		if q := t.queues[name]; q.waiters[0] != c || !q.fits(c) {
			return false
		}
	}
	return true
}

func (q *queue) fits(c *claim) bool {
	switch c.cfg.Mode {
	case lockstep.Exclusive:
		return len(q.holders) == 0
	case lockstep.Shared:
		return !slices.ContainsFunc(q.holders, func(h *claim) bool { return h.cfg.Mode == lockstep.Exclusive })
	case lockstep.Permits:
		free := c.cfg.Capacity
		for _, h := range q.holders {
			free -= h.cfg.Weight
		}
		return c.cfg.Weight <= free
	default:
		panic(fmt.Sprintf("memlock: claim with mode %d", c.cfg.Mode))
	}
}

func (t *table) grant(c *claim, now time.Time) {
	c.token = t.tokenFor(c)
	c.state, c.since = granted, now
	for _, name := range c.cfg.Names {
		q := t.queues[name]
		q.waiters = without(q.waiters, c)
		q.holders = append(q.holders, c)
	}
}

// tokenFor returns the next token, or that of the shared holders that the claim joins: a guard
// compares tokens without knowing modes. Permits have none.
func (t *table) tokenFor(c *claim) lockstep.Token {
	if c.cfg.Mode == lockstep.Permits {
		return 0
	}
	if c.cfg.Mode == lockstep.Shared {
		for _, h := range t.queues[c.cfg.Names[0]].holders {
			if h.state == granted {
				return h.token
			}
		}
	}
	token := t.next
	t.next++
	return token
}

// busy reports what blocks the claim: the holders of the first name where it has to wait, and its
// place in that queue.
func (t *table) busy(c *claim) *lockstep.BusyError {
	for _, name := range c.cfg.Names {
		q := t.queues[name]
		ahead := slices.Index(q.waiters, c)
		if ahead > 0 || !q.fits(c) {
			return &lockstep.BusyError{Holders: public(q.holders), Position: ahead + 1}
		}
	}
	panic("memlock: an unblocked claim was not granted")
}

// inspect returns the current state of a name, for display.
func (t *table) inspect(name string) lockstep.State {
	s := lockstep.State{Name: name, NextToken: t.next}
	if q := t.queues[name]; q != nil {
		s.Holders, s.Waiters = public(q.holders), public(q.waiters)
	}
	return s
}
