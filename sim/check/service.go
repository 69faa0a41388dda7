package check

import (
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A tally adds up how long leaders were well. The bounds for freeing what is over are measured in
// this time, because nothing ends without a leader.
type tally struct {
	term  uint64        // whose leader is well now; zero: none is
	since time.Duration // since when
	done  time.Duration // counted of leaders before
}

// settling is how much of a leader's service does not count: it waits 1 s for sessions to come back
// before it records the ends of their leases, and whatever it has not logged at its end is lost.
const settling = 1500 * time.Millisecond

func (s *tally) counted(now time.Duration) time.Duration {
	if s.term == 0 {
		return s.done
	}
	return s.done + max(0, now-s.since-settling)
}

// Serves says which term's leader is well now, zero if none is, and finds what should have ended by
// now, however often the leader changed. It must be called every few turns of a leader.
func (b *Book) Serves(term uint64) *Violation {
	s, now := &b.table.service, b.table.now
	if term != s.term {
		s.done = s.counted(now)
		s.term, s.since = term, now
	}
	return b.overstayed(s.counted(now))
}

// overstayed finds sessions and delays that leaders have had enough time to end.
func (b *Book) overstayed(counted time.Duration) *Violation {
	late := func(from, span time.Duration) bool { return counted-from > span*101/100+grace+slip }
	for _, s := range b.table.opened {
		// The first leader may serve for TTL/2 before it records the end of a lease; a later one
		// spreads the ends over TTL/4.
		if ttl := millis(s.ttl); s.ended == command.OK && late(s.counted, ttl*7/4) {
			return broken(Bound, "session %v was last renewed at %v for %v; leaders have served %v since", s.id, s.heard, ttl, counted-s.counted)
		}
	}
	for _, n := range b.table.order {
		for _, c := range n.holders {
			s := b.table.sessions[c.id.Session]
			if span := millis(max(s.ttl, c.spec.LockDelay)); c.state.Final() && late(c.counted, span) {
				return broken(Bound, "claim %v is over since %v and closes %q for %v; leaders have served %v since", c.id, c.since, n.text, span, counted-c.counted)
			}
		}
	}
	return nil
}

// NeedlessExpiry checks the expiry, now, of a session whose keepalive the leader read at the time
// read and has neither answered nor refused.
func (b *Book) NeedlessExpiry(id command.SessionID, term uint64, read time.Duration) *Violation {
	s, now := b.table.sessions[id], b.table.now
	ttl := millis(s.ttl) - millis(s.ttl)/slack
	if b.top.term != term || read <= b.top.since || read < s.heard || read-s.heard >= ttl || now-read >= ttl {
		return nil
	}
	return broken(Needless, "session %v, renewed at %v for %v, ended with a keepalive waiting that came at %v", id, s.heard, millis(s.ttl), read)
}
