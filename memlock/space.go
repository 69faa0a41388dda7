package memlock

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// Grace is how much longer than the TTL the space keeps the locks of a Locker that is cut off, so
// that the holders find out first.
const Grace = 500 * time.Millisecond

// An Option adjusts a [Space].
type Option interface{ apply(*Space) }

type optionFunc func(*Space)

func (f optionFunc) apply(s *Space) { f(s) }

// WithTTL sets the TTL of the leases. Default: [lockstep.DefaultTTL]. It may be
// shorter than real backends allow, down to what [lease.Check] allows, which is a
// little over 300 ms.
func WithTTL(ttl time.Duration) Option {
	return optionFunc(func(s *Space) { s.ttl = ttl })
}

// A Space is the set of names for which its Lockers contend. It is safe for concurrent use.
type Space struct {
	ttl time.Duration

	mu       sync.Mutex // guards the fields below, and all claims, sessions and Lockers of the space
	table    table
	sessions int // how many were created so far
	watches  map[string][]chan struct{}
	detached map[lockstep.Handle]*claim
}

// NewSpace creates an empty space. It panics if [lease.Check] refuses the TTL.
func NewSpace(opts ...Option) *Space {
	s := &Space{
		ttl:      lockstep.DefaultTTL,
		table:    newTable(),
		watches:  map[string][]chan struct{}{},
		detached: map[lockstep.Handle]*claim{},
	}
	for _, o := range opts {
		o.apply(s)
	}
	if err := lease.Check(s.ttl); err != nil {
		panic(err)
	}
	return s
}

// Locker returns a new Locker in the space. It contends with the others like a separate process.
func (s *Space) Locker() *Locker {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &Locker{space: s, closed: make(chan struct{})}
	l.session = s.openLocked(l)
	return l
}

// Revoke takes the named lock away from all its holders, as an operator does, and returns how many
// there were. They learn at once that by revoked it, unless they are cut off. Others get the lock
// when the holders have called Release, or after TTL + Grace.
func (s *Space) Revoke(name, by string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.holdersLocked(name) {
		loss := &lockstep.LossError{Reason: lockstep.Revoked, By: by}
		switch {
		case c.state == closing:
			continue
		case c.lock == nil: // its holder does not know of the grant yet
			s.takeLocked(c, loss)
		default:
			s.closeLocked(c, loss, s.ttl+Grace)
		}
		n++
	}
	return n
}

// Delete makes the space forget all claims of the name, as when a store evicts records or is
// tampered with. Holders lose the lock with [lockstep.RecordMissing], unless they are cut off: then
// they continue until their lease ends, alongside the next holder. Waiters claim again in their old
// order. Tokens keep rising.
func (s *Space) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.table.queues[name]
	if q == nil {
		return
	}
	holders, waiters := slices.Clone(q.holders), slices.Clone(q.waiters)
	freed := []string{name}
	for _, c := range waiters { // all leave before any is granted
		freed = append(freed, c.cfg.Names...)
		s.removeLocked(c)
	}
	for _, c := range holders {
		s.takeLocked(c, &lockstep.LossError{Reason: lockstep.RecordMissing})
	}
	for _, c := range waiters {
		s.enterLocked(c)
	}
	s.settleLocked(freed...)
}

func (s *Space) holdersLocked(name string) []*claim {
	if q := s.table.queues[name]; q != nil {
		return slices.Clone(q.holders)
	}
	return nil
}

// closeLocked takes a granted claim away from its holder but lets it block others for d. Releasing
// a revoked lock ends that sooner.
func (s *Space) closeLocked(c *claim, loss *lockstep.LossError, d time.Duration) {
	c.state, c.loss = closing, loss
	c.ending = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.freeLocked(c)
	})
	s.notifyLocked(c)
	s.changedLocked(c.cfg.Names)
}

// takeLocked takes a granted claim away from its holder and frees its names at once.
func (s *Space) takeLocked(c *claim, loss *lockstep.LossError) {
	c.loss = loss
	if c.lock == nil { // it was granted while its Locker was cut off
		c.session.locker.orphan(c)
	}
	s.freeLocked(c)
	s.notifyLocked(c)
}

// freeLocked removes the claim from the table and grants what it was blocking.
func (s *Space) freeLocked(c *claim) {
	s.removeLocked(c)
	s.settleLocked(c.cfg.Names...)
}

// removeLocked removes the claim from the table. A granted claim never comes back; a waiting one
// may be entered again.
func (s *Space) removeLocked(c *claim) {
	if c.ending != nil {
		c.ending.Stop()
	}
	s.table.remove(c)
	c.session.drop(c)
	delete(s.detached, c.handle)
	if c.lock != nil && !c.lock.isFreed {
		c.lock.isFreed = true
		close(c.lock.freed)
	}
}

// enterLocked puts the claim at the end of its queues or records why it cannot.
func (s *Space) enterLocked(c *claim) {
	if c.err = s.table.add(c, time.Now()); c.err == nil {
		c.session.keep(c)
	} else {
		s.notifyLocked(c)
	}
}

// settleLocked grants the claims that can be granted after a change to the names.
func (s *Space) settleLocked(names ...string) {
	s.changedLocked(names)
	for _, c := range s.table.settle(time.Now(), names...) {
		s.notifyLocked(c)
		s.changedLocked(c.cfg.Names)
	}
}

// changedLocked wakes the watchers of the names.
func (s *Space) changedLocked(names []string) {
	for _, name := range names {
		for _, wake := range s.watches[name] {
			select {
			case wake <- struct{}{}:
			default: // already awake: it will see this change too
			}
		}
	}
}

func public(claims []*claim) []lockstep.Claim {
	var list []lockstep.Claim
	for _, c := range claims {
		list = append(list, lockstep.Claim{
			Owner:    c.session.id,
			Token:    c.token,
			Mode:     c.cfg.Mode,
			Since:    c.since,
			Metadata: maps.Clone(c.cfg.Metadata),
		})
	}
	return list
}

func (s *Space) openLocked(l *Locker) *session {
	s.sessions++
	return &session{id: fmt.Sprintf("memory-%d", s.sessions), locker: l}
}
