package lease

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Never is a time that no clock reaches.
const Never = time.Duration(math.MaxInt64)

// maxOpenAttempts bounds the attempts whose answers a State can still use. With one send every
// TTL/3 a lease ends three sends after its last confirmation; the rest is for retries. Older
// attempts are forgotten and their answers ignored, which is safe.
const maxOpenAttempts = 64

// Margin is how long before TTL the holder stops trusting its lease: the larger of TTL/50, which
// covers clock rates that differ by 2 %, and 100 ms.
func Margin(ttl time.Duration) time.Duration {
	return max(ttl/50, 100*time.Millisecond)
}

// Interval is the time between renewals: TTL/3.
func Interval(ttl time.Duration) time.Duration { return ttl / 3 }

// Check reports whether a lease of this TTL leaves room to be renewed: a renewal that fails,
// another one, and the margin must all fit into the TTL, so the TTL must exceed 300 ms. Backends
// check the TTL that users ask for with lockstep.CheckTTL, which is stricter; this is for a TTL
// that a server dictates.
func Check(ttl time.Duration) error {
	if 2*Interval(ttl)+Margin(ttl) >= ttl {
		return fmt.Errorf("lease: ttl %v leaves no time for a second renewal: two intervals of %v and the margin of %v must be shorter",
			ttl, Interval(ttl), Margin(ttl))
	}
	return nil
}

// A State knows how long a lease may be trusted. It has no clock: now is the time on a [Clock], the
// same for all calls. A new State is not valid until its first attempt, the one that opens the
// lease, is confirmed. It is safe for concurrent use, so that a lock's Check can read it while
// KeepAlive renews it.
type State struct {
	mu        sync.Mutex
	ttl       time.Duration
	attempts  uint64                         // number of attempts sent; also the last one's number
	sentAt    [maxOpenAttempts]time.Duration // by number modulo the size
	confirmed uint64                         // the newest confirmed attempt; 0 means none
	from      time.Duration                  // when confirmed was sent
	until     time.Duration                  // from + ttl - margin
	over      bool                           // for good
}

// New returns the State of a lease that is about to be requested. It panics if [Check] refuses ttl.
func New(ttl time.Duration) *State {
	if err := Check(ttl); err != nil {
		panic(err)
	}
	return &State{ttl: ttl}
}

// TTL is the TTL currently in effect.
func (s *State) TTL() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ttl
}

// Adopt takes over the TTL that the backend granted, which may differ from the requested one. Call
// it before Confirm for the answer that carried it. A shorter TTL also shortens what is already
// confirmed; a longer one takes effect with the next confirmation.
func (s *State) Adopt(ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ttl = ttl
	if s.confirmed != 0 {
		s.until = min(s.until, s.endLocked(s.from))
	}
}

// Sending records that a renewal is about to be sent and returns its number, starting at 1. The
// caller reads now just before it sends. Each send is one attempt: a retry is a new attempt.
func (s *State) Sending(now time.Duration) (attempt uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	s.sentAt[s.attempts%maxOpenAttempts] = now
	return s.attempts
}

// Confirm records that the backend has confirmed the attempt, and reports whether ValidUntil moved.
// It does not move for an attempt that is unknown, too old, or older than the newest confirmed one,
// or if the lease is over at now.
func (s *State) Confirm(now time.Duration, attempt uint64) bool {
	return s.ConfirmSince(now, attempt, Never)
}

// ConfirmSince is Confirm for a backend whose answer guarantees a lease that began before the
// attempt was sent: the lease counts from since, or from the send time if that is earlier.
func (s *State) ConfirmSince(now time.Duration, attempt uint64, since time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overLocked(now) || attempt <= s.confirmed || attempt > s.attempts || s.attempts-attempt >= maxOpenAttempts {
		return false
	}
	from := min(s.sentAt[attempt%maxOpenAttempts], since)
	until := s.endLocked(from)
	if s.confirmed != 0 && until <= s.until { // after Adopt of a shorter TTL, or because since is earlier
		return false
	}
	s.confirmed, s.from, s.until = attempt, from, until
	return !s.overLocked(now)
}

// End ends the lease at once: it was released, or the backend reported it gone.
func (s *State) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// ValidUntil is the first moment at which the lease may no longer be trusted. It is zero before the
// first confirmation.
func (s *State) ValidUntil() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until
}

// Valid reports whether the lease is confirmed and not over at now. Once it has reported that a
// confirmed lease is over, the lease stays over.
func (s *State) Valid(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.overLocked(now) && s.confirmed != 0
}

// Remaining is the time from now to ValidUntil, or zero when the lease is not valid.
func (s *State) Remaining(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overLocked(now) || s.confirmed == 0 {
		return 0
	}
	return s.until - now
}

// Over reports whether the lease has ended: after End, or at ValidUntil. A lease
// that was never confirmed is neither valid nor over.
func (s *State) Over(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overLocked(now)
}

// NextSend is when the next renewal is due: one [Interval] after the last send, and not before now.
// It is [Never] when the lease is over. Retries after a failed renewal come sooner: see [Backoff].
func (s *State) NextSend(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.overLocked(now):
		return Never
	case s.attempts == 0:
		return now
	default:
		return max(now, s.sentAt[s.attempts%maxOpenAttempts]+Interval(s.ttl))
	}
}

// endLocked is the end of a lease whose confirmed attempt was sent at from.
func (s *State) endLocked(from time.Duration) time.Duration {
	return from + s.ttl - Margin(s.ttl)
}

// overLocked remembers that the end has passed, so that a confirmation in flight at that moment
// cannot revive a lease that was already reported lost.
func (s *State) overLocked(now time.Duration) bool {
	if s.confirmed != 0 && now >= s.until {
		s.over = true
	}
	return s.over
}
