package wirefake

import (
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

func (s *Service) acquire(e *session, r *pb.ClientRequest, a *pb.StreamAcquire) {
	if s.Held != nil {
		s.answer(e, r, &pb.ServerEvent{Body: &pb.ServerEvent_Error{Error: s.Held}})
		return
	}
	e.acknowledge(a.GetFloor(), a.GetSeen())
	if c := e.claims[a.GetSeq()]; c != nil {
		if c.spec != nil && !proto.Equal(c.spec, a.GetSpec()) {
			s.refuse(e.stream, r, pb.Reason_REASON_REQUEST_REUSED, "seq")
			return
		}
		s.answerClaim(e, r, c)
		return
	}
	switch {
	case a.GetSeq() < e.floor:
		s.refuse(e.stream, r, pb.Reason_REASON_STALE_REQUEST, "seq")
		return
	case a.GetSeq() >= a.GetFloor()+s.Window:
		s.refuse(e.stream, r, pb.Reason_REASON_OUT_OF_RANGE, "seq")
		return
	}
	c := &claim{session: e, seq: a.GetSeq(), spec: a.GetSpec(), status: &pb.ClaimStatus{Seq: a.GetSeq(), State: pb.ClaimState_CLAIM_STATE_QUEUED}}
	e.claims[c.seq] = c
	for _, n := range c.spec.GetNames() {
		l := s.lock(n)
		l.waiters = append(l.waiters, c)
	}
	if s.fits(c) {
		s.grant(c)
	} else if c.spec.WaitMs != nil && c.spec.GetWaitMs() == 0 {
		s.unqueue(c)
		c.status.State = pb.ClaimState_CLAIM_STATE_BUSY
	} else {
		c.status.Position = uint32(len(s.lock(c.spec.GetNames()[0]).waiters))
	}
	s.answerClaim(e, r, c)
}

func (s *Service) cancel(e *session, r *pb.ClientRequest, q *pb.StreamCancel) {
	e.acknowledge(q.GetFloor(), q.GetSeen())
	c := e.claims[q.GetSeq()]
	switch {
	case c == nil && q.GetSeq() < e.floor:
		s.refuse(e.stream, r, pb.Reason_REASON_STALE_REQUEST, "seq")
		return
	case c == nil:
		c = &claim{session: e, seq: q.GetSeq(), status: &pb.ClaimStatus{Seq: q.GetSeq(), State: pb.ClaimState_CLAIM_STATE_CANCELLED}}
		e.claims[c.seq] = c
	default:
		s.endByOwner(c, pb.ClaimState_CLAIM_STATE_CANCELLED)
	}
	s.answerClaim(e, r, c)
}

func (s *Service) release(e *session, r *pb.ClientRequest, q *pb.StreamRelease) {
	c := e.claims[q.GetSeq()]
	switch {
	case c == nil && q.GetSeq() < e.floor:
		s.refuse(e.stream, r, pb.Reason_REASON_STALE_REQUEST, "seq")
	case c == nil || c.status.GetToken() != q.GetToken():
		s.refuse(e.stream, r, pb.Reason_REASON_NOT_HELD, "token")
	case c.bySvc:
		s.endByOwner(c, pb.ClaimState_CLAIM_STATE_RELEASED)
		s.refuse(e.stream, r, pb.Reason_REASON_LOST, "token")
	default:
		s.endByOwner(c, pb.ClaimState_CLAIM_STATE_RELEASED)
		s.answerClaim(e, r, c)
	}
}

// endByOwner ends a live claim, or confirms the end of a closing one.
func (s *Service) endByOwner(c *claim, state pb.ClaimState) {
	if c.closing {
		s.confirm(c)
		return
	}
	switch c.status.GetState() {
	case pb.ClaimState_CLAIM_STATE_QUEUED, pb.ClaimState_CLAIM_STATE_GRANTED:
		c.status.State = state
		s.free(c)
	}
}

func (s *Service) confirm(c *claim) {
	c.closing = false
	s.free(c)
}

func (s *Service) lock(name string) *lock {
	l := s.locks[name]
	if l == nil {
		l = &lock{}
		s.locks[name] = l
	}
	return l
}

func (s *Service) fits(c *claim) bool {
	for _, n := range c.spec.GetNames() {
		if l := s.lock(n); l.holder != nil || l.waiters[0] != c {
			return false
		}
	}
	return true
}

func (s *Service) grant(c *claim) {
	s.token++
	c.status.State, c.status.Token, c.status.Position = pb.ClaimState_CLAIM_STATE_GRANTED, s.token, 0
	s.unqueue(c)
	for _, n := range c.spec.GetNames() {
		s.lock(n).holder = c
	}
}

func (s *Service) unqueue(c *claim) {
	for _, n := range c.spec.GetNames() {
		l := s.lock(n)
		l.waiters = slices.DeleteFunc(l.waiters, func(w *claim) bool { return w == c })
	}
}

// free removes the claim from its names and grants them to the next claims.
func (s *Service) free(c *claim) {
	s.unqueue(c)
	for _, n := range c.spec.GetNames() {
		if l := s.lock(n); l.holder == c {
			l.holder = nil
		}
	}
	for _, n := range c.spec.GetNames() {
		if l := s.lock(n); len(l.waiters) > 0 && s.fits(l.waiters[0]) {
			next := l.waiters[0]
			s.grant(next)
			s.changed(next)
		}
	}
}

// Revoke takes the named lock away from its holder, and keeps the name from others until the holder
// confirms or EndDelay is called.
func (s *Service) Revoke(name, by string) bool {
	c := s.lock(name).holder
	if c == nil || c.closing {
		return false
	}
	c.closing, c.bySvc = true, true
	c.status.State, c.status.By, c.status.Reason = pb.ClaimState_CLAIM_STATE_REVOKED, by, "test"
	s.changed(c)
	return true
}

// EndDelay frees the named lock if its holder was revoked and has not confirmed.
func (s *Service) EndDelay(name string) {
	if c := s.lock(name).holder; c != nil && c.closing {
		s.confirm(c)
	}
}

// EndWait ends the wait of the claim that has waited for the name the longest.
func (s *Service) EndWait(name string) {
	l := s.lock(name)
	if len(l.waiters) == 0 {
		return
	}
	c := l.waiters[0]
	c.bySvc = true
	c.status.State = pb.ClaimState_CLAIM_STATE_WAIT_ENDED
	s.changed(c)
	s.free(c)
}

// Expire ends a session because its lease ran out.
func (s *Service) Expire(id string) { s.endAndNotify(id, pb.Reason_REASON_SESSION_EXPIRED) }

// RevokeSession ends a session as an operator does.
func (s *Service) RevokeSession(id string) { s.endAndNotify(id, pb.Reason_REASON_REVOKED) }

func (s *Service) endAndNotify(id string, reason pb.Reason) {
	e := s.sessions[id]
	if e == nil || e.ended != 0 {
		return
	}
	s.say(e.stream, &pb.ServerEvent{Session: id, Body: &pb.ServerEvent_Ended{Ended: &pb.SessionEnded{Reason: reason, By: "test"}}})
	s.end(e, reason)
}

// end ends a whole session, its waiters first so that none of them is granted.
func (s *Service) end(e *session, reason pb.Reason) {
	e.ended = reason
	var holding []*claim
	for _, seq := range e.seqs() {
		c := e.claims[seq]
		switch {
		case c.status.GetState() == pb.ClaimState_CLAIM_STATE_QUEUED:
			s.unqueue(c)
			holding = append(holding, c)
		case c.status.GetState() == pb.ClaimState_CLAIM_STATE_GRANTED || c.closing:
			holding = append(holding, c)
		}
		c.closing = false
		c.status.State = pb.ClaimState_CLAIM_STATE_EXPIRED
	}
	for _, c := range holding {
		s.free(c)
	}
	clear(e.claims)
	e.stream = 0
}

func (e *session) seqs() []uint64 {
	var seqs []uint64
	for seq := range e.claims {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs
}

// Holder returns the holder of the name, or zero values if there is none.
func (s *Service) Holder(name string) (session string, seq, token uint64) {
	c := s.lock(name).holder
	if c == nil {
		return "", 0, 0
	}
	return c.session.id, c.seq, c.status.GetToken()
}

// Waiters returns the length of the name's queue.
func (s *Service) Waiters(name string) int { return len(s.lock(name).waiters) }

// Live returns the number of sessions that have not ended, and of their queued, granted or closing
// claims.
func (s *Service) Live() (sessions, claims int) {
	for _, e := range s.sessions {
		if e.ended != 0 {
			continue
		}
		sessions++
		for _, c := range e.claims {
			if c.closing || c.status.GetState() < pb.ClaimState_CLAIM_STATE_RELEASED {
				claims++
			}
		}
	}
	return sessions, claims
}
