package memlock

import (
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// A session is a Locker's registration with the space. It needs no renewal within one process, and
// lives until the Locker is cut off for a whole TTL. The Space's mutex guards it.
type session struct {
	id      string
	locker  *Locker // nil for the session of a detached lock
	claims  []*claim
	over    bool // the Locker has abandoned it and has another
	expired bool // the space has ended it

	unrenewedSince time.Time   // zero while it is renewed
	localEnd       *time.Timer // fires when the Locker abandons it
	spaceEnd       *time.Timer // fires when the space ends it
}

func (n *session) keep(c *claim) {
	c.session = n
	n.claims = append(n.claims, c)
}

func (n *session) drop(c *claim) { n.claims = without(n.claims, c) }

// stopRenewingLocked starts the two timers of the session: the holder's, which is shorter, and the
// space's.
func (s *Space) stopRenewingLocked(n *session) {
	n.unrenewedSince = time.Now()
	n.spaceEnd = time.AfterFunc(s.ttl+Grace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expireLocked(n)
	})
	if n.locker == nil {
		return
	}
	n.localEnd = time.AfterFunc(s.validity(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.giveUpLocked(n, lockstep.LeaseEnded)
	})
}

func (n *session) renewAgain() {
	n.unrenewedSince = time.Time{}
	for _, timer := range []*time.Timer{n.spaceEnd, n.localEnd} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// validity is how long a holder trusts its lease after a renewal.
func (s *Space) validity() time.Duration { return s.ttl - lease.Margin(s.ttl) }

// remainingLocked is how long the holder may trust the session, at most [Space.validity].
func (s *Space) remainingLocked(n *session) time.Duration {
	switch {
	case n.over:
		return 0
	case n.unrenewedSince.IsZero():
		return s.validity()
	default:
		return max(s.validity()-time.Since(n.unrenewedSince), 0)
	}
}

// lapseLocked abandons the session if its end has passed and the timer is late.
func (s *Space) lapseLocked(n *session) {
	if n.locker != nil && !n.over && s.remainingLocked(n) == 0 {
		s.giveUpLocked(n, lockstep.LeaseEnded)
	}
}

// giveUpLocked ends the session for the Locker: its locks are lost, and waiting claims continue in
// a new session once the space can be reached.
func (s *Space) giveUpLocked(n *session, why lockstep.LossReason) {
	if n.over {
		return
	}
	n.over = true
	l := n.locker
	if l.session == n {
		l.session = s.openLocked(l)
	}
	for _, c := range n.claims {
		if c.lock != nil {
			c.lock.endLocked(&lockstep.LossError{Reason: why})
		} else {
			l.orphan(c)
		}
	}
}

// expireLocked ends the session in the space. It removes all claims of the session before it grants
// their names to others.
func (s *Space) expireLocked(n *session) {
	if n.expired {
		return
	}
	n.expired = true
	connected := n.locker != nil && n.locker.cut == nil
	if connected {
		s.giveUpLocked(n, lockstep.SessionExpired)
	}
	var freed []string
	for _, c := range slices.Clone(n.claims) {
		if c.state == granted && c.cfg.LockDelay > 0 && (c.lock != nil || n.locker == nil) {
			s.closeLocked(c, &lockstep.LossError{Reason: lockstep.SessionExpired}, max(c.cfg.LockDelay, s.ttl+Grace))
		} else if c.state != closing {
			freed = append(freed, c.cfg.Names...)
			s.removeLocked(c)
			c.loss = &lockstep.LossError{Reason: lockstep.SessionExpired}
		}
	}
	s.settleLocked(freed...)
	if connected {
		s.requeueLocked(n.locker)
	}
}

// orphan records a claim that the space took away before its Acquire learned of a grant: it
// continues in a new session.
func (l *Locker) orphan(c *claim) {
	if !c.abandoned && !c.orphaned {
		c.orphaned = true
		l.orphans = append(l.orphans, c)
	}
}

// requeueLocked puts the orphaned claims at the end of their queues, in the Locker's current
// session. All of them leave their queues before any is entered again, so that none is granted in
// the ended session.
func (s *Space) requeueLocked(l *Locker) {
	orphans := l.orphans
	l.orphans = nil
	var freed []string
	for _, c := range orphans {
		c.orphaned = false
		freed = append(freed, c.cfg.Names...)
		s.removeLocked(c)
	}
	s.settleLocked(freed...)
	for _, c := range orphans {
		if c.abandoned {
			continue
		}
		c.session, c.loss = l.session, nil
		s.enterLocked(c)
		s.settleLocked(c.cfg.Names...)
	}
}
