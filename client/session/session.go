package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/lease"
)

// Never is a time that no clock reaches.
const Never = lease.Never

// Window bounds how far above the floor the sent claims may be. The floor is the lowest number
// whose answer is still needed. The service refuses a claim beyond the window; here the claim
// waits. It is the default window of the service.
const Window = 1024

// Config describes the session to open.
type Config struct {
	// TTL is the lease to request, 1 s to 300 s. Default: 10 s. The service may grant another.
	TTL time.Duration
	// Metadata is shown with every claim of the session.
	Metadata map[string]string
	// FirstTag is where the tags of requests start, so that sessions on one stream can tell their
	// answers apart. Default: 1.
	FirstTag uint64
	// Rand draws from [0, 1) for the jitter of retries. Default: always 0.5, which is no jitter.
	Rand func() float64
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, lockstep.DefaultTTL)
	c.FirstTag = max(c.FirstTag, 1)
	if c.Rand == nil {
		c.Rand = func() float64 { return 0.5 }
	}
	c.Metadata = maps.Clone(c.Metadata)
	return c
}

// A link is the state of the connection.
type link int

const (
	down      link = iota
	opening        // Open was sent
	attaching      // Attach was sent
	up             // requests may be sent
)

// A Session is one session from before it is opened until after it is over. It is not safe for
// concurrent use, except for the methods that say so.
//
// Times are readings of one [lease.Clock]; now never decreases between calls.
type Session struct {
	cfg   Config
	lease *lease.State

	id      string // empty until opened
	secret  []byte
	grace   time.Duration
	attach  uint64 // number of the last attachment
	seen    uint64 // last change number reached
	outrun  int    // how many times in a row another connection attached first
	closing bool   // Close was called
	over    bool   // the Over update was delivered

	link     link
	lastTag  uint64
	inFlight map[uint64]sent // requests without an answer on this connection, by tag
	watch    watch
	pending  []pendingConfirm
	attachAt time.Duration // when to attach again on this connection; 0 = never
	opened   uint64        // attempt of the Open in flight

	claims  map[uint64]*claim // all that are not over
	lastSeq uint64
	floor   uint64
	unsent  []uint64 // claims whose Acquire is to be sent, ascending
	later   []uint64 // claims to retry at their retryAt

	// revoked holds the claims of a revoked session that the holder has not released; the service
	// waits for that before it passes on their names.
	revoked map[uint64]bool

	restored uint64 // the claim of a detached session until it is handed out; 0 = none

	out     []*pb.ClientRequest
	updates []Update
}

// New returns a session that is not opened yet. It panics if cfg.TTL is out of bounds, see
// [lockstep.CheckTTL].
func New(cfg Config) *Session {
	cfg = cfg.withDefaults()
	if err := lockstep.CheckTTL(cfg.TTL); err != nil {
		panic(err)
	}
	return &Session{
		cfg:      cfg,
		lease:    lease.New(cfg.TTL),
		lastTag:  cfg.FirstTag - 1,
		inFlight: make(map[uint64]sent),
		claims:   make(map[uint64]*claim),
		floor:    1,
	}
}

// Connected reports that a new connection is up. Its events follow.
func (s *Session) Connected(now time.Duration) {
	if s.ended(now) {
		return
	}
	s.dropLink()
	if s.id == "" {
		s.sendOpen(now)
		return
	}
	s.sendAttach(now)
}

// Disconnected reports that the connection is gone. It may be called if there is none.
func (s *Session) Disconnected(now time.Duration) {
	s.dropLink()
	s.ended(now)
}

// Tick does what is due at now: the end of the lease, a keepalive, a retry.
func (s *Session) Tick(now time.Duration) {
	if s.ended(now) {
		return
	}
	if s.attachAt != 0 && now >= s.attachAt {
		s.sendAttach(now)
	}
	s.keepAlive(now)
	s.checkAnswers(now)
	s.retryDue(now)
	s.flush(now)
}

// Expire ends the session if its lease is over at now, and reports whether it is over.
func (s *Session) Expire(now time.Duration) bool { return s.ended(now) }

// Acquire makes a claim and returns its number. It is sent when the session is connected and the
// window has room. The caller must not modify spec afterwards. After the end of the session the
// claim is abandoned at once.
func (s *Session) Acquire(now time.Duration, spec *pb.ClaimSpec) (seq uint64) {
	s.lastSeq++
	c := &claim{seq: s.lastSeq, spec: spec, asked: now}
	if s.ended(now) || s.closing {
		s.tell(Update{Kind: Abandoned, Seq: c.seq})
		return c.seq
	}
	s.claims[c.seq] = c
	s.unsent = append(s.unsent, c.seq)
	s.flush(now)
	return c.seq
}

// Cancel gives a claim up, granted or not. A grant in flight is not handed out. The end is reported
// once the service has confirmed it. Cancel of a claim that is over or ending does nothing.
func (s *Session) Cancel(now time.Duration, seq uint64) {
	s.finish(now, seq, endCancel)
}

// Release releases a granted claim, or confirms that the work under a lost one has stopped. The end
// is reported once the service has confirmed it. Release of a claim that is over or ending does
// nothing.
func (s *Session) Release(now time.Duration, seq uint64) {
	s.finish(now, seq, endRelease)
}

// Close ends the session and all its claims. Over is reported when the service has confirmed it or
// the lease has run out.
func (s *Session) Close(now time.Duration) {
	if s.ended(now) || s.closing {
		return
	}
	s.closing = true
	if s.id == "" { // the service may have created a session that no one uses: it expires
		s.end(now, Update{Detail: "closed before it was open"})
		return
	}
	s.unsent, s.later = nil, nil
	if s.link == up {
		s.sendClose(now)
	}
}

// Lose ends the session because the service that knew it is gone for good: granted claims are lost,
// with the reason [lockstep.RecordMissing], and the others are abandoned. A session that is not yet
// open is left as it is.
func (s *Session) Lose(now time.Duration, detail string) {
	if s.id != "" && !s.ended(now) {
		s.endedBy(now, pb.Reason_REASON_SESSION_UNKNOWN, "", detail)
	}
}

// Drain returns the requests to send on the current connection and the updates since the last
// Drain, both in order.
func (s *Session) Drain() ([]*pb.ClientRequest, []Update) {
	out, updates := s.out, s.updates
	s.out, s.updates = nil, nil
	return out, updates
}

// NextTick is when Tick next has something to do unless another call comes first; [Never] when the
// session is over.
func (s *Session) NextTick() time.Duration {
	if s.over {
		return Never
	}
	next := Never
	if s.id != "" {
		if end := s.lease.ValidUntil(); end != 0 { // a restored session has none before its first renewal
			next = min(next, end)
		}
		if s.link == up && !s.closing {
			next = min(next, s.lease.NextSend(0))
		}
	}
	next = min(next, s.overdue())
	if s.attachAt != 0 {
		next = min(next, s.attachAt)
	}
	if s.link == up && !s.closing { // retries need a connection: without it a tick would do nothing
		for _, seq := range s.later {
			next = min(next, s.claims[seq].retryAt)
		}
	}
	return next
}

// ID is the public id; empty before the session is open.
func (s *Session) ID() string { return s.id }

// TTL is the requested lease, or the granted one once the session is open.
func (s *Session) TTL() time.Duration { return s.lease.TTL() }

// Grace is what the service adds before it ends a session; zero before the session is open.
func (s *Session) Grace() time.Duration { return s.grace }

// ValidUntil is the first moment at which nothing in this session may be trusted any longer; zero
// before it is open. It is safe for concurrent use.
func (s *Session) ValidUntil() time.Duration { return s.lease.ValidUntil() }

// Valid reports whether the session is open and its lease is valid at now. It is safe for
// concurrent use.
func (s *Session) Valid(now time.Duration) bool { return s.lease.Valid(now) }

// Holds reports whether the claim was handed out, is not over, and may be trusted at now.
func (s *Session) Holds(now time.Duration, seq uint64) (token uint64, held bool) {
	c := s.claims[seq]
	if c == nil || c.state != granted || c.end != endNone || s.closing || !s.lease.Valid(now) {
		return 0, false
	}
	return c.token, true
}

// Sent reports whether the service may know of the claim.
func (s *Session) Sent(seq uint64) bool { c := s.claims[seq]; return c != nil && c.sends > 0 }

// Attached reports whether the session can send requests now.
func (s *Session) Attached() bool { return s.link == up }

// IsOver reports whether the session has ended.
func (s *Session) IsOver() bool { return s.over }

// Seen is the last change number reached. It is for tests and traces.
func (s *Session) Seen() uint64 { return s.seen }

// Floor is the lowest claim number whose answer is still needed. It is for tests and traces.
func (s *Session) Floor() uint64 { return s.floor }

// Claims is the number of claims that are not over.
func (s *Session) Claims() int { return len(s.claims) }

func (s *Session) tell(u Update) { s.updates = append(s.updates, u) }

// seqs returns the numbers of all live claims, ascending: map order would not be reproducible in a
// simulation.
func (s *Session) seqs() []uint64 { return slices.Sorted(maps.Keys(s.claims)) }
