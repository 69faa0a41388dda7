package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client/session"
	"github.com/lockstep-dev/lockstep/lease"
)

// actLocked acts on one update of the session.
func (c *Client) actLocked(s *session.Session, u session.Update) {
	switch u.Kind {
	case session.Opened, session.Resumed:
		c.attachedLocked(s, u.Kind)
	case session.Renewed:
		// Both are readings of the suspend-proof clock, which processes of one machine share.
		sent := s.ValidUntil() - s.TTL() + lease.Margin(s.TTL())
		c.cfg.Logger.Debug("lease renewed", "session", s.ID(), "sent_ms", sent.Milliseconds(), "valid_until_ms", s.ValidUntil().Milliseconds())
		c.eventLocked(Event{Kind: Renewed, Session: s.ID()})
	case session.Reconnect:
		c.leaveLocked(u)
	case session.Deferred:
		c.deferLocked(u)
	case session.Over:
		c.sessionOverLocked(s, u)
	default:
		c.actOnClaimLocked(s, u)
	}
}

func (c *Client) actOnClaimLocked(s *session.Session, u session.Update) {
	k := c.mu.claims[u.Seq]
	if k == nil {
		return // its caller is gone; the session has ended it
	}
	switch u.Kind {
	case session.Queued:
		k.queued, k.deferred = &u, nil
	case session.Granted:
		c.grantLocked(s, k, u)
	case session.Refused:
		c.dropLocked(k, k.refusal(u.Err))
	case session.Abandoned:
		delete(c.mu.claims, u.Seq)
		c.mu.orphans = append(c.mu.orphans, k)
	case session.Lost:
		loss := &lockstep.LossError{Reason: u.Reason, By: u.By, Detail: u.Detail}
		if k.lock == nil {
			c.dropLocked(k, loss)
			return
		}
		delete(c.mu.claims, u.Seq)
		c.loseLocked(k.lock, loss)
	case session.Released:
		delete(c.mu.claims, u.Seq)
		if k.lock != nil {
			c.confirmLocked(k.lock)
		}
	}
}

// dropLocked answers the caller of a claim with an error.
func (c *Client) dropLocked(k *claim, err error) {
	delete(c.mu.claims, k.seq)
	k.fail(err)
}

func (c *Client) grantLocked(s *session.Session, k *claim, u session.Update) {
	k.lock = newLock(c, s, k, u)
	if c.mu.link != nil {
		c.mu.link.granted = true
	}
	if k.cfg.MaxHold > 0 {
		k.lock.endsAt = c.cfg.Clock.Now() + k.cfg.MaxHold
		c.mu.limited = append(c.mu.limited, k.lock)
	}
	close(k.answered)
}

// loseLocked ends a lock that was taken away or whose lease has run out.
func (c *Client) loseLocked(l *lock, loss *lockstep.LossError) {
	released := l.over != nil // the holder released it, but it ended some other way
	l.finishLocked(loss)
	l.settle(loss)
	if released {
		return
	}
	c.eventLocked(Event{Kind: Lost, Name: l.Name(), Session: l.sess.ID(), Err: loss})
	c.cfg.Logger.Warn("lock lost", "lock", l.Name(), "token", uint64(l.token), "reason", loss.Reason.String(), "by", loss.By, "detail", loss.Detail)
}

// confirmLocked records that the service has confirmed the end of a lock.
func (c *Client) confirmLocked(l *lock) {
	l.finishLocked(lockstep.ErrReleased)
	l.settle(nil)
	c.eventLocked(Event{Kind: Released, Name: l.Name(), Session: l.sess.ID()})
}

func (c *Client) attachedLocked(s *session.Session, kind session.Kind) {
	c.mu.attached, c.mu.superseded, c.mu.lastErr = true, false, nil
	c.guard.tally.served()
	c.mu.ttl, c.mu.grace = s.TTL(), s.Grace()
	if l := c.mu.link; l != nil && !l.attached {
		l.attached, l.since = true, c.cfg.Clock.Now()
	}
	if kind == session.Opened {
		c.eventLocked(Event{Kind: SessionOpened, Session: s.ID()})
		c.cfg.Logger.Info("session opened", "session", s.ID(), "ttl", s.TTL())
	}
}

// deferLocked records why a claim, or the attachment of the session, is retried.
func (c *Client) deferLocked(u session.Update) {
	if k := c.mu.claims[u.Seq]; k != nil {
		k.deferred = u.Err
	}
	c.mu.superseded = c.mu.superseded || u.Seq == 0
}

// leaveLocked leaves the current connection for another.
func (c *Client) leaveLocked(u session.Update) {
	err := errors.New(u.Detail)
	if u.Err != nil {
		err = fromWire(u.Err)
	}
	if l := c.mu.link; l != nil {
		l.answer = answerOf(l.addr, err)
		if u.Err != nil {
			l.answer = answerOfWire(l.addr, u.Err)
		}
	}
	c.reconnectLocked(u.Leader, err)
}

func (c *Client) sessionOverLocked(s *session.Session, u session.Update) {
	c.mu.sess = nil
	c.mu.attached = false
	if u.Reason == lockstep.Revoked && c.mu.link != nil {
		c.mu.revoked = append(c.mu.revoked, s)
	}
	var err error
	if u.Reason != 0 {
		err = &lockstep.LossError{Reason: u.Reason, By: u.By, Detail: u.Detail}
	} else if u.Err != nil {
		err = fromWire(u.Err)
	}
	c.eventLocked(Event{Kind: SessionOver, Session: s.ID(), Err: err})
	if err == nil {
		c.cfg.Logger.Info("session ended", "session", s.ID())
	} else {
		c.cfg.Logger.Warn("session ended", "session", s.ID(), "err", err)
	}
	if c.mu.closed {
		close(c.over)
		return
	}
	c.claimAgainLocked(c.cfg.Clock.Now())
}

// claimAgainLocked moves the claims that were still waiting when their session ended to a new
// session, in their old order.
func (c *Client) claimAgainLocked(now time.Duration) {
	orphans := c.mu.orphans
	c.mu.orphans = nil
	for _, k := range orphans {
		k.spec = k.specFor(now)
		c.submitLocked(now, k)
	}
}

func (c *Client) eventLocked(e Event) { c.mu.events = append(c.mu.events, e) }

// unavailableLocked is the error of a claim that found no service.
func (c *Client) unavailableLocked() error {
	if c.mu.superseded {
		return fmt.Errorf("%w: other commands keep attaching this handle: try again", lockstep.ErrUnavailable)
	}
	if e := c.guard.tally.outage(); e != nil {
		return e
	}
	return fmt.Errorf("%w: no node in %v is serving", lockstep.ErrUnavailable, c.cfg.Endpoints)
}
