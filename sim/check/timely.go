package check

import (
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// slip is how late a healthy leader may be with what is due: its turns, its rounds, an entry.
const slip = 2 * time.Second

// grace is what the service adds to every lease and delay.
const grace = 500 * time.Millisecond

// Confirmed records that the leader of a term confirms a renewal now. A deposed leader may confirm
// late what it read earlier (see Renews): its successor times the lease from its own beginning, and
// the client from when it sent the request.
func (b *Book) Confirmed(term uint64, id command.SessionID) {
	if s := b.table.sessions[id]; s != nil && term >= b.top.term {
		s.kept = true
		s.heard, s.counted = b.table.begin()
	}
}

// Overdue finds what should have ended by now: sessions that were not renewed, waits that ran out,
// delays that passed. It counts from healthy, since when the cluster has been well, or from the
// last change of leader, which starts all of them over, if that was later.
func (b *Book) Overdue(now, healthy time.Duration) *Violation {
	start := max(healthy, b.top.since)
	late := func(since, span time.Duration) bool { return now > max(since, start)+span*101/100+slip }
	for _, n := range b.table.order {
		for _, c := range n.queue {
			if c.spec.HasWait && late(c.since, millis(c.spec.Wait)) {
				return broken(Liveness, "claim %v waits since %v for %q, it wanted to wait %v", c.id, c.since, n.text, millis(c.spec.Wait))
			}
		}
		for _, c := range n.holders {
			s := b.table.sessions[c.id.Session]
			if c.state.Final() && late(c.since, millis(max(s.ttl, c.spec.LockDelay))+grace) {
				return broken(Liveness, "claim %v is over since %v and still closes %q", c.id, c.since, n.text)
			}
		}
	}
	for _, s := range b.table.opened {
		ttl := millis(s.ttl)
		if s.ended == command.OK && late(s.heard, ttl+ttl/4+grace) {
			return broken(Liveness, "session %v lives although it was last renewed at %v for %v", s.id, s.heard, ttl)
		}
	}
	return nil
}

func millis(m command.Millis) time.Duration { return time.Duration(m) * time.Millisecond }
