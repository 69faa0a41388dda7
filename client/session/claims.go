package session

import (
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// The waits between attempts of a request that the service temporarily refuses: the first is 50 to
// 100 ms, and they double up to 1 to 2 s. If the service says how long it will refuse, the next
// attempt comes 50 to 500 ms after that, so that many clients do not arrive at once, and within 5 s
// in any case, since the service may be wrong.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
	toldSpread = 450 * time.Millisecond
	toldMax    = 5 * time.Second
)

// A claimState is what is known of a claim. It only moves forward.
type claimState int

const (
	asked   claimState = iota // no answer yet
	queued                    // it is in the queues of the service
	granted                   // handed out
	revoked                   // was handed out and taken back, and the holder knows
)

// An ending is how the caller wants a claim to end.
type ending int

const (
	endNone ending = iota
	endCancel
	endRelease
)

// A claim is one Acquire until its outcome is certain.
type claim struct {
	seq   uint64
	spec  *pb.ClaimSpec
	state claimState
	token uint64
	asked time.Duration // when Acquire was called
	sends int           // how often Acquire was sent
	end   ending
	quiet bool    // the caller already knows the outcome: no more updates
	loss  *Update // the claim was taken back while its release was in progress

	tag     uint64        // of the request in flight on this connection; 0 = none
	tries   int           // how often the service refused it
	retryAt time.Duration // with Session.later
}

// unanswered reports whether an answer for the claim's number is still needed, so that the floor
// must not pass it. Queued is an answer, but an unconfirmed end needs one more: if the number were
// forgotten before the Cancel arrives, an Acquire arriving after it would create a claim that no
// one knows about.
func (c *claim) unanswered() bool { return c.state == asked || c.end != endNone }

// raiseFloor moves the floor past the numbers that no longer need an answer.
func (s *Session) raiseFloor() {
	for s.floor <= s.lastSeq {
		if c := s.claims[s.floor]; c != nil && c.unanswered() {
			return
		}
		s.floor++
	}
}

// flush sends the claims waiting for the connection or the window, in order.
func (s *Session) flush(now time.Duration) {
	s.raiseFloor()
	if s.link != up || s.closing {
		return
	}
	n := 0
	for n < len(s.unsent) && s.unsent[n] < s.floor+Window {
		s.sendAcquire(now, s.claims[s.unsent[n]])
		n++
	}
	s.unsent = s.unsent[n:]
}

func (s *Session) sendAcquire(now time.Duration, c *claim) {
	c.sends++
	c.tag = s.push(now, kindAcquire, c.seq, &pb.ClientRequest{Body: &pb.ClientRequest_Acquire{Acquire: &pb.StreamAcquire{
		Seq: c.seq, Floor: s.floor, Seen: s.seen, Spec: c.spec,
	}}})
}

// finish starts to end a claim.
func (s *Session) finish(now time.Duration, seq uint64, end ending) {
	if s.ended(now) {
		s.confirmRevoked(now, seq)
		return
	}
	c := s.claims[seq]
	if c == nil || c.end != endNone || s.closing {
		return
	}
	if end == endRelease && c.token == 0 {
		end = endCancel // not granted: cancel it
	}
	s.unqueue(seq)
	if c.sends == 0 { // the service never saw it
		s.remove(c, Update{Kind: Released})
		s.flush(now)
		return
	}
	c.end, c.tag, c.tries = end, 0, 0
	if s.link == up {
		s.sendEnd(now, c)
	}
}

// unqueue removes the claim from the lists of claims to send.
func (s *Session) unqueue(seq uint64) {
	is := func(other uint64) bool { return other == seq }
	s.unsent = slices.DeleteFunc(s.unsent, is)
	s.later = slices.DeleteFunc(s.later, is)
}

// sendEnd sends the Cancel or Release of the claim. Permits have token zero, so a claim without a
// token is cancelled, which also ends a grant.
func (s *Session) sendEnd(now time.Duration, c *claim) {
	if c.end == endRelease {
		c.tag = s.push(now, kindRelease, c.seq, &pb.ClientRequest{Body: &pb.ClientRequest_Release{Release: &pb.StreamRelease{
			Seq: c.seq, Token: c.token,
		}}})
		return
	}
	c.tag = s.push(now, kindCancel, c.seq, &pb.ClientRequest{Body: &pb.ClientRequest_Cancel{Cancel: &pb.StreamCancel{
		Seq: c.seq, Floor: s.floor, Seen: s.seen,
	}}})
}

// remove forgets a claim that is over, and reports u unless the caller already knows.
func (s *Session) remove(c *claim, u Update) {
	delete(s.claims, c.seq)
	s.unqueue(c.seq)
	if c.quiet {
		return
	}
	if c.loss != nil {
		u = *c.loss
	}
	u.Seq = c.seq
	s.tell(u)
}

// retryLater tries the claim's request again after a jittered wait. e, which may be nil, is why it
// was refused.
func (s *Session) retryLater(now time.Duration, c *claim, e *pb.Error) {
	c.tag = 0
	c.retryAt = now + s.retryWait(c, span(e.GetRetryAfterMs()))
	s.later = append(s.later, c.seq)
}

// retryWait is how long to wait before the next try. told is the time that the service gave; zero:
// none.
func (s *Session) retryWait(c *claim, told time.Duration) time.Duration {
	least, most := told+firstRetry/2, told+firstRetry/2+toldSpread
	if told > toldMax-firstRetry/2-toldSpread {
		least, most = toldMax/2, toldMax
	}
	if told == 0 {
		most = min(firstRetry<<min(c.tries, 8), lastRetry)
		least = most / 2
		c.tries++
	}
	return least + time.Duration(s.cfg.Rand()*float64(most-least))
}

// retryDue moves the claims whose wait is over back to those to be sent.
func (s *Session) retryDue(now time.Duration) {
	if s.link != up || s.closing {
		return
	}
	s.later = slices.DeleteFunc(s.later, func(seq uint64) bool {
		c := s.claims[seq]
		if now < c.retryAt {
			return false
		}
		if c.end != endNone {
			s.sendEnd(now, c)
		} else {
			at, _ := slices.BinarySearch(s.unsent, seq)
			s.unsent = slices.Insert(s.unsent, at, seq)
		}
		return true
	})
}

// resend repeats requests, under the same numbers, that have had no answer for half a TTL although
// the connection is up. It should not be needed, and costs little.
func (s *Session) resend(now time.Duration) {
	for _, seq := range s.seqs() {
		c := s.claims[seq]
		q, ok := s.inFlight[c.tag]
		if !ok || now < q.at+s.lease.TTL()/2 {
			continue
		}
		delete(s.inFlight, c.tag)
		if c.end != endNone {
			s.sendEnd(now, c)
		} else {
			s.sendAcquire(now, c)
		}
	}
}

// end ends the session: every claim gets its last update, in order of number, then
// Over. u says why.
func (s *Session) end(now time.Duration, u Update) {
	s.over = true
	s.lease.End()
	s.out = nil
	for _, seq := range s.seqs() {
		s.endClaim(s.claims[seq], u)
	}
	s.unsent, s.later, s.pending = nil, nil, nil
	u.Kind = Over
	s.tell(u)
}

func (s *Session) endClaim(c *claim, u Update) {
	last := Update{Kind: Lost, Reason: u.Reason, By: u.By, Detail: u.Detail}
	switch {
	case s.closing && u.Reason == 0:
		last = Update{Kind: Released}
		if c.state < granted && c.end == endNone {
			last = Update{Kind: Abandoned}
		}
	case c.end == endCancel:
		last = Update{Kind: Released} // it ended with the session
	case c.state < granted && u.Reason == 0:
		last = Update{Kind: Refused, Err: u.Err}
	case c.state < granted && u.Reason != lockstep.Revoked:
		last = Update{Kind: Abandoned}
	case c.state == granted && u.Reason == lockstep.Revoked:
		if s.revoked == nil {
			s.revoked = make(map[uint64]bool)
		}
		s.revoked[c.seq] = true
	}
	s.remove(c, last)
}

// confirmRevoked records that the holder of a claim of a revoked session has stopped. Once all
// have, Close tells the service, which then need not wait for the TTL.
func (s *Session) confirmRevoked(now time.Duration, seq uint64) {
	if !s.revoked[seq] {
		return
	}
	delete(s.revoked, seq)
	if len(s.revoked) == 0 && s.link == up {
		s.sendClose(now)
	}
}
