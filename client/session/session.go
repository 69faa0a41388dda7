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

// Window bounds how far the claims that are sent may be above the floor, the lowest
// number whose answer is still needed. The service refuses a claim beyond it; here
// it waits. It is the default window of the service.
const Window = 1024

// Config says what session to open.
type Config struct {
	// TTL is the lease to ask for, 1 s to 300 s. Default: 10 s. The service may
	// grant another.
	TTL time.Duration
	// Metadata is shown beside every claim of the session.
	Metadata map[string]string
	// FirstTag is where the tags of requests start, so that the sessions of one
	// stream tell their answers apart. Default: 1.
	FirstTag uint64
	// Rand draws from [0, 1) for the jitter of retries. Default: 0.5 always, which is
	// no jitter.
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

// A Session is one session from before it is opened until after it is over. It is
// not safe for concurrent use; the methods that say so are.
//
// Times are readings of one [lease.Clock]; now never falls from call to call.
type Session struct {
	cfg   Config
	lease *lease.State

	id      string // empty until opened
	secret  []byte
	grace   time.Duration
	attach  uint64 // number of the last attachment
	seen    uint64 // last change number reached
	outrun  int    // how often in a row another connection attached first
	closing bool   // Close was called
	over    bool   // the Over update was given

	link     link
	lastTag  uint64
	inFlight map[uint64]sent // requests without an answer on this connection, by tag
	watch    watch
	pending  []pendingConfirm
	attachAt time.Duration // when to attach again on this connection; 0 = not
	opened   uint64        // attempt of the Open in flight

	claims  map[uint64]*claim // all that are not over
	lastSeq uint64
	floor   uint64
	unsent  []uint64 // claims whose Acquire is to be sent, rising
	later   []uint64 // claims to be tried again at their retryAt

	// revoked counts claims of a revoked session that the holder has not released:
	// the service waits for that before it hands on their names.
	revoked map[uint64]bool

	restored uint64 // the claim of a detached session until it is handed out; 0 = none

	out     []*pb.ClientRequest
	updates []Update
}

// New returns a session that is not opened yet. It panics when cfg.TTL is out of
// bounds, see [lockstep.CheckTTL].
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

// Connected tells that a new connection is up. Events of it follow.
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

// Disconnected tells that the connection is gone. It may be called when there is
// none.
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

// Acquire makes a claim and returns its number. It is sent when the session is
// connected and the window has room. The spec must not be changed any more. After
// the end of the session the claim is abandoned at once.
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

// Cancel gives a claim up, granted or not. A grant that is on its way is not handed out. The end is
// told when the service has confirmed it. Cancel of a claim that is over or ending does nothing.
func (s *Session) Cancel(now time.Duration, seq uint64) {
	s.finish(now, seq, endCancel)
}

// Release gives a granted claim back, or confirms that the work of a lost one has
// stopped. The end is told when the service has confirmed it. Release of a claim
// that is over or ending does nothing.
func (s *Session) Release(now time.Duration, seq uint64) {
	s.finish(now, seq, endRelease)
}

// Close ends the session and all its claims. Over is told when the service has
// confirmed it or the lease has run out.
func (s *Session) Close(now time.Duration) {
	if s.ended(now) || s.closing {
		return
	}
	s.closing = true
	if s.id == "" { // the service may have made a session that nobody uses: it expires
		s.end(now, Update{Detail: "closed before it was open"})
		return
	}
	s.unsent, s.later = nil, nil
	if s.link == up {
		s.sendClose(now)
	}
}

// Lose ends the session because the service that knew it is gone for good: what was granted is
// lost, with the reason [lockstep.RecordMissing], and what was not is abandoned. A session that is
// not open yet stays as it is.
func (s *Session) Lose(now time.Duration, detail string) {
	if s.id != "" && !s.ended(now) {
		s.endedBy(now, pb.Reason_REASON_SESSION_UNKNOWN, "", detail)
	}
}

// Drain returns what is to be sent on the present connection, in order, and what
// has happened, in order, since the last Drain.
func (s *Session) Drain() ([]*pb.ClientRequest, []Update) {
	out, updates := s.out, s.updates
	s.out, s.updates = nil, nil
	return out, updates
}

// NextTick is when Tick has something to do unless another call comes before;
// [Never] when the session is over.
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
	if s.link == up && !s.closing { // retries need a connection: without one a tick would do nothing
		for _, seq := range s.later {
			next = min(next, s.claims[seq].retryAt)
		}
	}
	return next
}

// ID is the public id; empty before the session is open.
func (s *Session) ID() string { return s.id }

// TTL is the lease as asked for, and as granted once the session is open.
func (s *Session) TTL() time.Duration { return s.lease.TTL() }

// Grace is what the service adds before it ends a session; zero before it is open.
func (s *Session) Grace() time.Duration { return s.grace }

// ValidUntil is the first moment at which nothing of this session may be believed
// in; zero before it is open. It is safe for concurrent use.
func (s *Session) ValidUntil() time.Duration { return s.lease.ValidUntil() }

// Valid reports whether the session is open and its lease runs at now. It is safe
// for concurrent use.
func (s *Session) Valid(now time.Duration) bool { return s.lease.Valid(now) }

// Holds reports whether the claim was handed out, is not over, and may be believed in
// at now.
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

// Seen is the last change number that was reached. It is for tests and traces.
func (s *Session) Seen() uint64 { return s.seen }

// Floor is the lowest claim number whose answer is still needed. It is for tests and traces.
func (s *Session) Floor() uint64 { return s.floor }

// Claims is the number of claims that are not over.
func (s *Session) Claims() int { return len(s.claims) }

func (s *Session) tell(u Update) { s.updates = append(s.updates, u) }

// seqs are the numbers of all live claims, rising: maps have no order that a
// simulation could repeat.
func (s *Session) seqs() []uint64 { return slices.Sorted(maps.Keys(s.claims)) }
