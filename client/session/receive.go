package session

import (
	"time"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// Receive handles one event of the current connection. Events of other sessions and answers to
// requests that are not in flight are ignored.
func (s *Session) Receive(now time.Duration, e *pb.ServerEvent) {
	if s.ended(now) || !s.concerns(e) {
		return
	}
	switch b := e.GetBody().(type) {
	case *pb.ServerEvent_Opened:
		s.openedBy(now, e.GetTag(), b.Opened)
	case *pb.ServerEvent_Attached:
		s.attachedBy(now, e.GetTag(), b.Attached)
	case *pb.ServerEvent_Kept:
		s.keptBy(now, e.GetTag(), b.Kept)
	case *pb.ServerEvent_Claim:
		s.answered(now, e.GetTag(), b.Claim)
	case *pb.ServerEvent_Change:
		s.became(now, b.Change)
		s.reached(now, b.Change.GetChange())
	case *pb.ServerEvent_Closed:
		s.closedBy(now, e.GetTag())
	case *pb.ServerEvent_Ended:
		s.endedFor(now, b.Ended)
	case *pb.ServerEvent_Error:
		s.failed(now, e.GetTag(), b.Error)
	}
	if !s.over {
		s.flush(now)
	}
}

// concerns reports whether an event is for this session: the answer to Open is identified only by
// its tag.
func (s *Session) concerns(e *pb.ServerEvent) bool {
	if e.GetTag() != 0 {
		_, mine := s.inFlight[e.GetTag()]
		return mine && (s.id == "" || e.GetSession() == "" || e.GetSession() == s.id)
	}
	return s.id != "" && e.GetSession() == s.id
}

// answered handles the answer to Acquire, Cancel or Release.
func (s *Session) answered(now time.Duration, tag uint64, st *pb.ClaimStatus) {
	q := s.inFlight[tag]
	delete(s.inFlight, tag)
	c := s.claims[q.seq]
	if c == nil || c.seq != st.GetSeq() {
		return
	}
	if c.tag != tag { // an older request of a claim that has moved on: its state still counts
		s.became(now, st)
		return
	}
	c.tag = 0
	if c.end == endNone {
		s.became(now, st)
		return
	}
	if st.GetState() < pb.ClaimState_CLAIM_STATE_RELEASED { // it should be over and is not
		s.retryLater(now, c, nil)
		return
	}
	s.confirmEnd(c, st)
}

// confirmEnd finishes a claim whose Cancel or Release was answered.
func (s *Session) confirmEnd(c *claim, st *pb.ClaimStatus) {
	u := Update{Kind: Released}
	if c.end == endRelease {
		switch st.GetState() {
		case pb.ClaimState_CLAIM_STATE_REVOKED:
			u = lostBy(st)
		case pb.ClaimState_CLAIM_STATE_EXPIRED:
			u = Update{Kind: Lost, Reason: lockstep.SessionExpired}
		}
	}
	s.remove(c, u)
}

func lostBy(st *pb.ClaimStatus) Update {
	return Update{Kind: Lost, Reason: lockstep.Revoked, By: st.GetBy(), Detail: st.GetReason()}
}

// became records a state of a claim reported by the service, solicited or not. Claims only move
// forward: an answer overtaken by a change is ignored.
func (s *Session) became(now time.Duration, st *pb.ClaimStatus) {
	c := s.claims[st.GetSeq()]
	if c == nil {
		s.killGhost(now, st)
		return
	}
	c.tries = 0
	switch st.GetState() {
	case pb.ClaimState_CLAIM_STATE_QUEUED:
		if c.state == asked && c.end == endNone {
			c.state = queued
			s.unqueue(c.seq)
			s.tell(Update{Kind: Queued, Seq: c.seq, Position: st.GetPosition(), Holders: st.GetHolders()})
		}
	case pb.ClaimState_CLAIM_STATE_GRANTED:
		s.becameGranted(c, st)
	case pb.ClaimState_CLAIM_STATE_REVOKED:
		s.becameRevoked(now, c, st)
	case pb.ClaimState_CLAIM_STATE_UNSPECIFIED:
	default:
		s.becameOver(c, st)
	}
}

func (s *Session) becameGranted(c *claim, st *pb.ClaimStatus) {
	if c.state >= granted || c.end != endNone || s.closing {
		return // already handed out, or the Cancel in flight ends it
	}
	c.state, c.token = granted, st.GetToken()
	s.unqueue(c.seq)
	s.tell(Update{Kind: Granted, Seq: c.seq, Token: c.token})
}

// becameRevoked notifies the holder. The service keeps the names closed until the holder confirms
// with Release, or until a TTL has passed.
func (s *Session) becameRevoked(now time.Duration, c *claim, st *pb.ClaimStatus) {
	loss := lostBy(st)
	loss.Seq = c.seq
	switch {
	case c.end == endRelease:
		if !c.quiet {
			c.loss = &loss // reported when the release is confirmed
		}
	case c.end == endCancel || c.state == revoked:
	case c.state == granted:
		c.state, c.quiet = revoked, true
		s.tell(loss)
	default: // it was never handed out: there is no one to stop
		s.tell(loss)
		c.quiet = true
		s.finish(now, c.seq, endCancel)
	}
}

// becameOver handles the other final states.
func (s *Session) becameOver(c *claim, st *pb.ClaimStatus) {
	switch {
	case c.end != endNone: // its own answer is on the way
	case c.state >= granted && st.GetState() == pb.ClaimState_CLAIM_STATE_EXPIRED:
		s.remove(c, Update{Kind: Lost, Reason: lockstep.SessionExpired})
	case c.state >= granted:
		s.remove(c, Update{Kind: Lost, Reason: lockstep.RecordMissing, Detail: "another call of the session ended it: " + stateText(st.GetState())})
	case st.GetState() == pb.ClaimState_CLAIM_STATE_EXPIRED:
		s.remove(c, Update{Kind: Abandoned})
	case st.GetState() == pb.ClaimState_CLAIM_STATE_CANCELLED:
		s.remove(c, Update{Kind: Refused, Err: &pb.Error{
			Reason: pb.Reason_REASON_NOT_QUEUED, Message: "another call of the session ended it: " + stateText(st.GetState()),
		}})
	default:
		s.remove(c, Update{Kind: Refused, Err: &pb.Error{
			Reason:   pb.Reason_REASON_BUSY,
			Message:  stateText(st.GetState()),
			Holders:  st.GetHolders(),
			Position: st.GetPosition(),
		}})
	}
}

func stateText(st pb.ClaimState) string {
	switch st {
	case pb.ClaimState_CLAIM_STATE_RELEASED:
		return "the claim was released"
	case pb.ClaimState_CLAIM_STATE_CANCELLED:
		return "the claim was cancelled"
	case pb.ClaimState_CLAIM_STATE_BUSY:
		return "others hold the lock or are ahead in the queue"
	case pb.ClaimState_CLAIM_STATE_WAIT_ENDED:
		return "the wait timed out"
	default:
		return st.String()
	}
}

// killGhost cancels a claim that is live at the service but unknown here: a request that was given
// up arrived after all.
func (s *Session) killGhost(now time.Duration, st *pb.ClaimStatus) {
	live := st.GetState() == pb.ClaimState_CLAIM_STATE_QUEUED || st.GetState() == pb.ClaimState_CLAIM_STATE_GRANTED
	if !live || s.closing || st.GetSeq() == 0 || st.GetSeq() > s.lastSeq {
		return
	}
	c := &claim{seq: st.GetSeq(), state: queued, sends: 1, end: endCancel, quiet: true}
	s.claims[c.seq] = c
	if s.link == up {
		s.sendEnd(now, c)
	}
}

func (s *Session) closedBy(now time.Duration, tag uint64) {
	delete(s.inFlight, tag)
	s.end(now, Update{})
}

// endedFor handles an end reported by the service: of the session, or only of our attachment to it
// because another caller with its secret took it over.
func (s *Session) endedFor(now time.Duration, e *pb.SessionEnded) {
	if e.GetReason() == pb.Reason_REASON_SESSION_UNKNOWN {
		s.superseded(now, &pb.Error{Reason: pb.Reason_REASON_STALE_REQUEST, Message: e.GetDetail()}, e.GetBy())
		return
	}
	s.endedBy(now, e.GetReason(), e.GetBy(), e.GetDetail())
}

// endedBy handles the end of the session by the service.
func (s *Session) endedBy(now time.Duration, reason pb.Reason, by, detail string) {
	u := Update{By: by, Detail: detail}
	switch reason {
	case pb.Reason_REASON_REVOKED:
		u.Reason = lockstep.Revoked
	case pb.Reason_REASON_SESSION_UNKNOWN:
		u.Reason = lockstep.RecordMissing
	default:
		u.Reason = lockstep.SessionExpired
	}
	if s.closing { // it is gone, as Close intended
		u = Update{}
	}
	s.end(now, u)
}

// failed handles a refused request.
func (s *Session) failed(now time.Duration, tag uint64, e *pb.Error) {
	q, known := s.inFlight[tag]
	delete(s.inFlight, tag)
	switch e.GetReason() {
	case pb.Reason_REASON_SESSION_EXPIRED, pb.Reason_REASON_SESSION_UNKNOWN, pb.Reason_REASON_REVOKED:
		if s.id != "" {
			s.endedBy(now, e.GetReason(), "", e.GetMessage())
		}
	case pb.Reason_REASON_NOT_LEADER:
		s.reconnect(Update{Err: e, Leader: e.GetLeaderAddress()})
	default:
		if known {
			s.refused(now, q, tag, e)
		} else if e.GetReason() == pb.Reason_REASON_UNAVAILABLE {
			s.reconnect(Update{Err: e})
		}
	}
}

// refused handles a refusal of one request by its kind.
func (s *Session) refused(now time.Duration, q sent, tag uint64, e *pb.Error) {
	switch q.kind {
	case kindOpen:
		if transient(e) {
			s.reconnect(Update{Err: e})
			return
		}
		s.end(now, Update{Err: e, Detail: e.GetMessage()})
	case kindKeepAlive:
		if e.GetReason() == pb.Reason_REASON_OVERLOADED {
			return // the next one is due soon, and a new connection would add load
		}
		s.left(now, e)
	case kindAttach:
		if e.GetReason() == pb.Reason_REASON_STALE_REQUEST {
			s.superseded(now, e, "")
			return
		}
		s.reconnect(Update{Err: e})
	case kindClose:
		s.left(now, e)
	default:
		if c := s.claims[q.seq]; c != nil && c.tag == tag {
			c.tag = 0
			s.claimRefused(now, c, e)
		}
	}
}

// left handles a refusal that may mean that another connection now has the session. While no one
// works under its claims, it attaches again on this connection.
func (s *Session) left(now time.Duration, e *pb.Error) {
	if notAttached(e) && (s.restored != 0 || !s.handedOut()) { // otherwise the next attachment shows whether it was another process
		s.superseded(now, e, "")
		return
	}
	s.reconnect(Update{Err: e})
}

func (s *Session) claimRefused(now time.Duration, c *claim, e *pb.Error) {
	switch {
	case notAttached(e):
		s.left(now, e)
	case c.end != endNone && over(e):
		s.remove(c, endOf(c, e))
	case c.end != endNone:
		s.retryLater(now, c, e)
	case transient(e) && !(c.spec.WaitMs != nil && c.spec.GetWaitMs() == 0):
		s.tell(Update{Kind: Deferred, Seq: c.seq, Err: e})
		s.retryLater(now, c, e)
	default:
		s.tell(Update{Kind: Refused, Seq: c.seq, Err: e})
		c.quiet = true
		s.forget(now, c)
	}
}

// forget drops a refused claim. If it was sent more than once, an earlier copy may already be in
// the log, so it is cancelled first.
func (s *Session) forget(now time.Duration, c *claim) {
	if c.sends > 1 {
		s.finish(now, c.seq, endCancel)
		return
	}
	s.remove(c, Update{})
}

// endOf interprets the refusal of a Cancel or Release. A number below the floor is one whose end
// the service has forgotten. It forgets an end that it caused only after we have seen it, so the
// end was ours.
func endOf(c *claim, e *pb.Error) Update {
	if c.end == endRelease && e.GetReason() == pb.Reason_REASON_LOST {
		return Update{Kind: Lost, Reason: lockstep.Revoked, Detail: e.GetMessage()}
	}
	return Update{Kind: Released}
}

// over reports whether a refused Cancel or Release means that the claim is not live.
func over(e *pb.Error) bool {
	switch e.GetReason() {
	case pb.Reason_REASON_STALE_REQUEST, pb.Reason_REASON_NOT_HELD, pb.Reason_REASON_NOT_QUEUED, pb.Reason_REASON_LOST:
		return true
	}
	return false
}

// transient reports whether the same node may accept the same request later: a claim is UNAVAILABLE
// while the cluster grants nothing, and no other node would grant it.
func transient(e *pb.Error) bool {
	switch e.GetReason() {
	case pb.Reason_REASON_OVERLOADED, pb.Reason_REASON_UNAVAILABLE, pb.Reason_REASON_UNSPECIFIED:
		return true
	}
	return false
}

// notAttached reports whether e is how the service refuses a request of a session that another
// connection has taken over, or that this connection has lost.
func notAttached(e *pb.Error) bool {
	return e.GetReason() == pb.Reason_REASON_INVALID_ARGUMENT && e.GetField() == "session"
}
