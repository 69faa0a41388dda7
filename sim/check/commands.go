package check

import (
	"reflect"

	"github.com/lockstep-dev/lockstep/server/command"
)

// command applies one command to the table and checks its result and its grants.
func (r *replay) command(c command.Command, res *command.Result) *Violation {
	switch c := c.(type) {
	case command.OpenSession:
		return r.open(c, res)
	case command.CloseSession:
		return r.close(c, res)
	case command.Acquire:
		return r.acquire(c, res)
	case command.Cancel:
		return r.cancel(c, res)
	case command.Release:
		return r.release(c, res)
	case command.Expire:
		return r.expire(c)
	case command.EndWait:
		return r.endWait(c)
	case command.EndDelay:
		return r.endDelay(c)
	case command.Revoke:
		return r.revoke(c)
	case command.SetLimits:
		if res.Code != command.OK {
			return broken(WrongAnswer, "the limits of the cluster were refused: %s", res.Limit)
		}
	case command.CheckpointLeases:
		r.checkpoint(c)
	case command.RenewLeases:
		r.count(Rewritten)
	case command.SetTokenFloor:
		r.floor = true
		r.top = max(r.top, c.Floor-1)
	}
	return r.match(r.settle(), owedToOwners)
}

func (r *replay) open(c command.OpenSession, res *command.Result) *Violation {
	if res.Code != command.OK {
		return nil // a limit
	}
	if r.sessions[res.Session] != nil {
		return broken(AtMostOnce, "two sessions are called %v", res.Session)
	}
	s := &session{id: res.Session, ttl: c.TTL, numbered: c.ClientNumbered, claims: map[uint64]*claim{}, nonces: map[string]uint64{}}
	s.heard, s.counted = r.begin()
	r.sessions[s.id] = s
	r.opened = append(r.opened, s)
	return nil
}

// live returns the session if it accepts requests, and otherwise checks the refusal.
func (r *replay) live(id command.SessionID, res *command.Result) (*session, *Violation) {
	s := r.sessions[id]
	if s != nil && s.ended == command.OK {
		if res.Code == command.SessionUnknown || res.Code == command.SessionExpired || res.Code == command.SessionRevoked {
			return nil, broken(WrongAnswer, "live session %v was told code %d", id, res.Code)
		}
		return s, nil
	}
	if res.Code == command.OK && !res.Claim.State.Final() {
		return nil, broken(DeadSession, "a request of session %v was answered %s", id, stateName(res.Claim.State))
	}
	r.count(RefusedEnded)
	return nil, nil
}

func (r *replay) acquire(a command.Acquire, res *command.Result) *Violation {
	s, v := r.live(a.Session, res)
	if s == nil {
		return v
	}
	seq := a.Seq
	if !s.numbered {
		if res.Code != command.OK {
			return nil // it has no number, and a retry may get the answer of its nonce
		}
		seq = res.Claim.Seq
		if before := s.nonces[a.Nonce]; a.Nonce != "" && before != 0 && before != seq {
			return broken(AtMostOnce, "nonce %q of %v made claim %d, and now %d", a.Nonce, s.id, before, seq)
		}
		s.nonces[a.Nonce] = seq
	}
	if c := s.claims[seq]; c != nil {
		r.count(Repeated)
		return r.again(c, a, res)
	}
	c := &claim{id: command.ClaimID{Session: a.Session, Seq: seq}, spec: a.Spec, code: res.Code}
	switch res.Code {
	case command.OK, command.ModeMismatch, command.QuotaExceeded: // the answer is kept for a retry
		s.claims[seq] = c
		s.order = append(s.order, c)
	}
	if res.Code != command.OK {
		return r.refused(&a.Spec, res)
	}
	r.enqueue(c)
	if a.Spec.Try() && !r.ready(c) {
		r.dequeue(c)
		c.state = command.Busy
	}
	if v := r.match(r.settle(), toldAlready); v != nil {
		return v
	}
	return r.answered(c, res)
}

// again checks the answer to an Acquire of a claim that was already made or cancelled.
func (r *replay) again(c *claim, a command.Acquire, res *command.Result) *Violation {
	same := reflect.DeepEqual(c.spec, a.Spec)
	switch {
	case c.code != command.OK && res.Code == c.code:
		return nil
	case c.code != command.OK && res.Code == command.OK:
		return broken(AtMostOnce, "claim %v was refused with code %d, a retry is now %s", c.id, c.code, stateName(res.Claim.State))
	case res.Code == command.OK:
		if c.state.Final() && !res.Claim.State.Final() {
			return broken(AtMostOnce, "claim %v was %s, a retry is now %s", c.id, stateName(c.state), stateName(res.Claim.State))
		}
		return r.answered(c, res)
	case res.Code == command.RequestReused && len(c.spec.Names) > 0 && !same, c.state.Final(), c.code != command.OK:
		return nil
	}
	return broken(WrongAnswer, "live claim %v was refused with code %d", c.id, res.Code)
}

func (r *replay) answered(c *claim, res *command.Result) *Violation {
	if res.Claim.State != c.state {
		return broken(WrongAnswer, "claim %v is %s, the answer was %s", c.id, stateName(c.state), stateName(res.Claim.State))
	}
	if c.state == command.Granted && res.Claim.Token != c.token {
		return broken(Tokens, "claim %v was granted with %d, the answer was %d", c.id, c.token, res.Claim.Token)
	}
	return nil
}

// refused checks the refusal of an unknown claim.
func (r *replay) refused(s *command.Spec, res *command.Result) *Violation {
	switch res.Code {
	case command.ModeMismatch:
		for _, text := range s.Names {
			if !r.name(text).suits(s) {
				r.count(RefusedMode)
				return nil
			}
		}
		return broken(WrongAnswer, "%q refused for its mode, and is not in use with another", s.Names)
	case command.NotReady:
		if r.table.floor {
			return broken(WrongAnswer, "not ready behind the token floor")
		}
		return broken(WrongAnswer, "%q was asked for in the log before a token could be given", s.Names)
	case command.StaleRequest, command.QuotaExceeded, command.OutOfRange:
	default:
		return broken(WrongAnswer, "a new claim was refused with code %d", res.Code)
	}
	return nil
}

func (r *replay) cancel(c command.Cancel, res *command.Result) *Violation {
	k := r.claim(command.ClaimID{Session: c.Session, Seq: c.Seq})
	s, v := r.live(c.Session, res)
	if s == nil {
		return r.confirm(k, v)
	}
	if k == nil {
		if res.Code == command.OK {
			r.count(CancelFirst)
			s.claims[c.Seq] = &claim{id: command.ClaimID{Session: c.Session, Seq: c.Seq}, state: command.Cancelled}
		}
		return nil
	}
	if res.Code != command.OK && !k.state.Final() && k.code == command.OK {
		return broken(WrongAnswer, "cancel of live claim %v was refused with code %d", k.id, res.Code)
	}
	r.end(k, command.Cancelled)
	return r.match(r.settle(), owedToOwners)
}

func (r *replay) release(c command.Release, res *command.Result) *Violation {
	k := r.claim(command.ClaimID{Session: c.Session, Seq: c.Seq})
	if k != nil && (!k.held || k.token != c.Token) {
		k = nil
	}
	s, v := r.live(c.Session, res)
	if s == nil {
		return r.confirm(k, v)
	}
	if k != nil {
		r.end(k, command.Released)
	}
	if res.Code == command.OK && res.Claim.State == command.Released && (s.claims[c.Seq] == nil || s.claims[c.Seq].state != command.Released) {
		return broken(WrongAnswer, "release of claim %d of %v confirmed without effect", c.Seq, c.Session)
	}
	return r.match(r.settle(), owedToOwners)
}

// confirm ends the closing of a claim whose session has ended: its owner knows of the end now. v is
// what is wrong with the answer, if anything.
func (r *replay) confirm(k *claim, v *Violation) *Violation {
	if v == nil && k != nil && k.held {
		r.count(ConfirmedEnd)
		r.free(k)
	}
	if v != nil {
		return v
	}
	return r.match(r.settle(), owedToOwners)
}

// end ends a live claim at its owner's request. For a claim that is over but closing, it confirms
// that the owner knows.
func (r *replay) end(k *claim, s command.State) {
	if k.state == command.Queued {
		r.dequeue(k)
	}
	if k.held {
		if k.state.Final() {
			r.count(ConfirmedEnd)
		}
		r.free(k)
	}
	if !k.state.Final() && k.code == command.OK {
		k.state = s
	}
}

func (r *replay) close(c command.CloseSession, res *command.Result) *Violation {
	s := r.sessions[c.Session]
	if s == nil {
		return nil
	}
	for _, k := range s.order {
		r.end(k, command.Released)
	}
	if s.ended == command.OK {
		s.ended = command.SessionUnknown
	}
	return r.match(r.settle(), owedToOwners)
}
