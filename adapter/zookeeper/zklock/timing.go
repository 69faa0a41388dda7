package zklock

import "time"

// timing holds what follows from the granted session timeout and the servers' tick.
type timing struct {
	timeout time.Duration
	tick    time.Duration
}

// newTiming uses the configured tick; zero means the longest possible, since a session timeout is
// at least two ticks.
func newTiming(timeout, tick time.Duration) timing {
	longest := timeout / 2
	if tick == 0 || tick > longest {
		tick = longest
	}
	return timing{timeout, tick}
}

// reportWithin is how long a follower takes to report a sign of life to the leader. It does so
// every half tick; the rest is for the scheduler.
func (t timing) reportWithin() time.Duration { return t.tick/2 + t.timeout/40 }

// beatEvery is the time between two beats: reads that the connected server answers by itself.
func (t timing) beatEvery() time.Duration { return t.timeout / 24 }

// grace is how much later than its timeout a session may end: half a tick for the follower's
// report, and one tick because the leader checks once per tick.
func (t timing) grace() time.Duration { return t.tick * 3 / 2 }

// quietFor is how long a connection may be silent before another server is tried. Beats are
// answered much more often. The client library would wait for 2/3 of the timeout, by which time all
// locks would be lost.
func quietFor(timeout time.Duration) time.Duration { return max(timeout/5, 250*time.Millisecond) }

// answerFor is how long a server has to answer a request to take over a session that has locks,
// given how many in a row did not answer. At first there is little time; later, slow servers must
// not get ever more requests.
func answerFor(timeout time.Duration, failures int) time.Duration {
	return min(quietFor(timeout)*time.Duration(failures+1), timeout)
}

// openWithin is how long one attempt to open a session may take, over all servers. Each server gets
// half of that: nothing is at stake yet, and a server that has just started is slow.
func (c Config) openWithin() time.Duration { return min(c.UnavailableAfter, 10*time.Second) }

// recheckEvery is how often a waiter checks again although no watch has fired. Watches are reliable
// within one connection, and all are rechecked after a reconnection; this bounds the cost of a
// fault in that.
const recheckEvery = 5 * time.Minute
