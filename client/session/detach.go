package session

import (
	"time"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/lease"
)

// Detached is a session with one granted claim that nobody attends to: what another
// process needs to go on with it. It contains the secret.
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

// Detach ends this side's part in the session and leaves its lease running. It refuses, and changes
// nothing, unless the session is open, its lease runs at now, and the granted claim seq is the only
// one that it has. Afterwards the session is over, which no update tells.
func (s *Session) Detach(now time.Duration, seq uint64) (Detached, bool) {
	token, held := s.Holds(now, seq)
	if !held || len(s.claims) != 1 {
		return Detached{}, false
	}
	d := Detached{ID: s.id, Secret: s.secret, TTL: s.lease.TTL(), Attach: s.attach, Seen: s.seen, Seq: seq, Token: token}
	s.Abandon()
	return d, true
}

// Abandon ends this side's part in the session in silence: nothing is sent, and no update
// follows. What the service has of it ends with its lease, unless another attends to it.
func (s *Session) Abandon() {
	s.over = true
	s.lease.End()
	clear(s.claims)
	s.out, s.updates = nil, nil
	s.unsent, s.later, s.pending = nil, nil, nil
}

// Restore returns a session that goes on with a detached one. It attaches when it is connected. Its
// claim is told as Granted at the first renewal that the service confirms, and before that nothing
// of it may be believed in; when it is over it is told as Lost. TTL and Metadata of cfg have no
// effect. It panics when d.TTL leaves no time for a second renewal, see [lease.Check].
func Restore(cfg Config, d Detached) *Session {
	cfg.TTL = lockstep.DefaultTTL
	s := New(cfg)
	s.lease = lease.New(d.TTL)
	s.id, s.secret, s.attach, s.seen = d.ID, d.Secret, d.Attach, d.Seen
	s.lastSeq, s.floor, s.restored = d.Seq, d.Seq+1, d.Seq
	s.claims[d.Seq] = &claim{seq: d.Seq, spec: &pb.ClaimSpec{}, state: granted, token: d.Token, sends: 1}
	return s
}

// tellRestored hands the claim of a detached session out, once its lease is certain.
func (s *Session) tellRestored() {
	c := s.claims[s.restored]
	s.restored = 0
	if c != nil && c.state == granted && c.end == endNone {
		s.tell(Update{Kind: Granted, Seq: c.seq, Token: c.token})
	}
}
