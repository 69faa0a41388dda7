package client

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

func jitter() float64 { return rand.Float64() }

// watchLease is the goroutine that watches the clock while there is a session. It
// needs no network: at the end of the lease the locks are lost, whatever the
// connection does.
func (c *Client) watchLease() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-timer.C:
		case <-c.wakeTimer:
		}
		timer.Reset(c.tick())
	}
}

// tick does what is due and returns the time to the next tick. Go's timers stop while the machine
// is suspended, so the wait is never long while there is a session.
func (c *Client) tick() (wait time.Duration) {
	c.do(func(now time.Duration) {
		if c.mu.sess != nil {
			c.mu.sess.Tick(now)
		}
		c.endLimitedLocked(now)
		c.giveUpLocked(now)
		c.settleLocked()
		c.mu.ticksAt = lease.Never
		if c.mu.sess == nil && len(c.mu.limited) == 0 {
			wait = time.Hour // nothing to watch; a new session wakes the timer
			return
		}
		c.mu.ticksAt = min(c.nextTickLocked(), now+lease.WatchEvery)
		wait = max(c.mu.ticksAt-now, 0)
	})
	return wait
}

// expire ends the session if its lease is over, without waiting for the next tick.
func (c *Client) expire() {
	c.do(func(now time.Duration) {
		if c.mu.sess != nil {
			c.mu.sess.Expire(now)
		}
	})
}

func (c *Client) nextTickLocked() time.Duration {
	next := lease.Never
	if c.mu.sess != nil {
		next = min(c.mu.sess.NextTick(), c.cfg.Clock.Now()+lease.WatchEvery)
	}
	for _, l := range c.mu.limited {
		next = min(next, l.endsAt)
	}
	return next
}

// endLimitedLocked ends the locks whose MaxHold has passed.
func (c *Client) endLimitedLocked(now time.Duration) {
	c.mu.limited = slices.DeleteFunc(c.mu.limited, func(l *lock) bool {
		if l.over == nil && now >= l.endsAt {
			c.loseLocked(l, &lockstep.LossError{Reason: lockstep.MaxHoldReached})
			delete(c.mu.claims, l.claim.seq)
			l.sess.Release(now, l.claim.seq)
		}
		return l.over != nil
	})
}

// giveUpLocked ends the claims for which no node was available for too long. A claim that was sent
// belongs to a session whose lease ends before it is given up.
func (c *Client) giveUpLocked(now time.Duration) {
	if c.mu.attached || c.mu.sess == nil || c.cfg.UnavailableAfter < 0 || now < c.mu.downSince+c.cfg.UnavailableAfter {
		return
	}
	for seq, k := range c.mu.claims {
		if k.lock != nil || now < k.started+c.cfg.UnavailableAfter || c.mu.sess.Sent(seq) {
			continue
		}
		c.mu.sess.Cancel(now, seq)
		c.dropLocked(k, c.unavailableLocked())
	}
}
