package session

import (
	"time"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/lease"
)

// Detached is an unattended session with one granted claim: everything that another process needs
// to continue it. It contains the secret.
type Detached struct {
	ID     string
	Secret []byte
	TTL    time.Duration
	// Attach is a number that no attachment has exceeded.
	Attach uint64
	Seen   uint64 // the last change number that was reached
	Seq    uint64 // of the claim, at least 1
	Token  uint64 // zero for permits
}

// Detach ends this side's use of the session and leaves its lease running. It refuses, and changes
// nothing, unless the session is open, its lease is valid at now, and the granted claim seq is its
// only claim. Afterwards the session is over, without an update.
func (s *Session) Detach(now time.Duration, seq uint64) (Detached, bool) {
	token, held := s.Holds(now, seq)
	if !held || len(s.claims) != 1 {
		return Detached{}, false
	}
	d := Detached{ID: s.id, Secret: s.secret, TTL: s.lease.TTL(), Attach: s.attach, Seen: s.seen, Seq: seq, Token: token}
	s.Abandon()
	return d, true
}

// Abandon silently ends this side's use of the session: nothing is sent, and no update follows. At
// the service the session ends with its lease, unless another process continues it.
func (s *Session) Abandon() {
	s.over = true
	s.lease.End()
	clear(s.claims)
	s.out, s.updates = nil, nil
	s.unsent, s.later, s.pending = nil, nil, nil
}

// Restore returns a session that continues a detached one. It attaches when connected. Its claim is
// reported as Granted at the first renewal that the service confirms, and must not be trusted
// before that; if it is over, it is reported as Lost. TTL and Metadata of cfg have no effect. It
// panics if d.TTL leaves no time for a second renewal, see [lease.Check].
func Restore(cfg Config, d Detached) *Session {
	cfg.TTL = lockstep.DefaultTTL
	s := New(cfg)
	s.lease = lease.New(d.TTL)
	s.id, s.secret, s.attach, s.seen = d.ID, d.Secret, d.Attach, d.Seen
	s.lastSeq, s.floor, s.restored = d.Seq, d.Seq+1, d.Seq
	s.claims[d.Seq] = &claim{seq: d.Seq, spec: &pb.ClaimSpec{}, state: granted, token: d.Token, sends: 1}
	return s
}

// tellRestored hands out the claim of a detached session once its lease is certain.
func (s *Session) tellRestored() {
	c := s.claims[s.restored]
	s.restored = 0
	if c != nil && c.state == granted && c.end == endNone {
		s.tell(Update{Kind: Granted, Seq: c.seq, Token: c.token})
	}
}
