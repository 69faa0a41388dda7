package expiry

import (
	"fmt"
	"time"
)

// A Clock is a healthy clock. Its zero value is not usable; see NewClock. Real times are readings
// of any clock that does not go back.
type Clock struct {
	maxStep time.Duration
	last    time.Duration // real time at the last Advance
	now     time.Duration // credited so far
	due     time.Duration // the same, but held back by unhandled keepalives; due <= now
}

// NewClock returns a clock that starts at zero at the real time t and credits at most maxStep per
// Advance.
func NewClock(t, maxStep time.Duration) Clock {
	if maxStep <= 0 {
		panic(fmt.Sprintf("expiry: step of %v", maxStep))
	}
	return Clock{maxStep: maxStep, last: t}
}

// Advance credits the real time from the last call to t, at most one step of it, and nothing unless
// healthy. A t before the last one counts as the last one.
func (c *Clock) Advance(t time.Duration, healthy bool) {
	passed := max(0, t-c.last)
	c.last += passed
	if healthy {
		c.now += min(passed, c.maxStep)
	}
}

// Now returns the time from which new deadlines are counted.
func (c *Clock) Now() time.Duration { return c.now }

// Settle lets deadlines fall due up to now, but not beyond the moment at which oldest, a real time,
// was read. Pass the receive time of the oldest unhandled keepalive, or the real time if there is
// none. Settle returns the time up to which deadlines are due.
func (c *Clock) Settle(oldest time.Duration) time.Duration {
	// The clock is never faster than real time, so at oldest it showed at least now minus the real
	// time since. After a dropped gap, that is too early by the length of the gap, which holds
	// deadlines back until the keepalive is handled: the safe side.
	waited := max(0, c.last-oldest)
	c.due = max(c.due, c.now-waited)
	return c.due
}
