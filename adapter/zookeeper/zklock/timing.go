package zklock

import "time"

// timing is what follows from the granted session timeout and the servers' tick.
type timing struct {
	timeout time.Duration
	tick    time.Duration
}

// newTiming takes the tick as configured; zero means the longest that it can be: a session timeout
// is two ticks at least.
func newTiming(timeout, tick time.Duration) timing {
	longest := timeout / 2
	if tick == 0 || tick > longest {
		tick = longest
	}
	return timing{timeout, tick}
}

// reportWithin is how long it takes until a follower has reported a sign of life to the leader. It
// does so every half tick; the rest is for the scheduler.
func (t timing) reportWithin() time.Duration { return t.tick/2 + t.timeout/40 }

// beatEvery is the time between two beats: reads that the server nearby answers alone.
func (t timing) beatEvery() time.Duration { return t.timeout / 24 }

// grace is how much later than its timeout a session may end: half a tick for the follower's
// report, and one because the leader looks once a tick.
func (t timing) grace() time.Duration { return t.tick * 3 / 2 }

// quietFor is how long a connection may be silent before another server is tried. Beats are
// answered much more often. The client library alone would wait for 2/3 of the timeout, when all
// locks are lost.
func quietFor(timeout time.Duration) time.Duration { return max(timeout/5, 250*time.Millisecond) }

// answerFor is how long a server has to answer a request to take over a session that has locks, by
// how many did not answer in a row. There is little time at first, and then servers that are slow
// must not get ever more requests.
func answerFor(timeout time.Duration, failures int) time.Duration {
	return min(quietFor(timeout)*time.Duration(failures+1), timeout)
}

// openWithin is how long one try to open a session takes, with all servers. Each has half of that:
// nothing is at stake yet, and a server that has just started is slow.
func (c Config) openWithin() time.Duration { return min(c.UnavailableAfter, 10*time.Second) }

// recheckEvery is how often a waiter looks again although no watch has fired. Watches are reliable
// on one connection, and all are looked at after a reconnection; this bounds what a fault in that
// would cost.
const recheckEvery = 5 * time.Minute
