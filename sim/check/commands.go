package check

import (
	"reflect"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// command applies one command to the table and checks its result and its grants.
func (r *replay) command(c machine.Command, res *machine.Result) *Violation {
	switch c := c.(type) {
	case machine.OpenSession:
		return r.open(c, res)
	case machine.CloseSession:
		return r.close(c, res)
	case machine.Acquire:
		return r.acquire(c, res)
	case machine.Cancel:
		return r.cancel(c, res)
	case machine.Release:
		return r.release(c, res)
	case machine.Expire:
		return r.expire(c)
	case machine.EndWait:
		return r.endWait(c)
	case machine.EndDelay:
		return r.endDelay(c)
	case machine.Revoke:
		return r.revoke(c)
	case machine.SetLimits:
		if res.Code != machine.OK {
			return broken(WrongAnswer, "the limits of the cluster were refused: %s", res.Limit)
		}
	case machine.CheckpointLeases:
		r.checkpoint(c)
	case machine.RenewLeases:
		r.count(Rewritten)
	case machine.SetTokenFloor:
		r.floor = true
		r.top = max(r.top, c.Floor-1)
	}
	return r.match(r.settle(), owedToOwners)
}

func (r *replay) open(c machine.OpenSession, res *machine.Result) *Violation {
	if res.Code != machine.OK {
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
func (r *replay) live(id machine.SessionID, res *machine.Result) (*session, *Violation) {
	s := r.sessions[id]
	if s != nil && s.ended == machine.OK {
		if res.Code == machine.SessionUnknown || res.Code == machine.SessionExpired || res.Code == machine.SessionRevoked {
			return nil, broken(WrongAnswer, "live session %v was told code %d", id, res.Code)
		}
		return s, nil
	}
	if res.Code == machine.OK && !res.Claim.State.Final() {
		return nil, broken(DeadSession, "a request of session %v was answered %s", id, stateName(res.Claim.State))
	}
	r.count(RefusedEnded)
	return nil, nil
}

func (r *replay) acquire(a machine.Acquire, res *machine.Result) *Violation {
	s, v := r.live(a.Session, res)
	if s == nil {
		return v
	}
	seq := a.Seq
	if !s.numbered {
		if res.Code != machine.OK {
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
	c := &claim{id: machine.ClaimID{Session: a.Session, Seq: seq}, spec: a.Spec, code: res.Code}
	switch res.Code {
	case machine.OK, machine.ModeMismatch, machine.QuotaExceeded: // the answer is kept for a retry
		s.claims[seq] = c
		s.order = append(s.order, c)
	}
	if res.Code != machine.OK {
		return r.refused(&a.Spec, res)
	}
	r.enqueue(c)
	if a.Spec.Try() && !r.ready(c) {
		r.dequeue(c)
		c.state = machine.Busy
	}
	if v := r.match(r.settle(), toldAlready); v != nil {
		return v
	}
	return r.answered(c, res)
}

// again checks the answer to an Acquire of a claim that was already made or cancelled.
func (r *replay) again(c *claim, a machine.Acquire, res *machine.Result) *Violation {
	same := reflect.DeepEqual(c.spec, a.Spec)
	switch {
	case c.code != machine.OK && res.Code == c.code:
		return nil
	case c.code != machine.OK && res.Code == machine.OK:
		return broken(AtMostOnce, "claim %v was refused with code %d, a retry is now %s", c.id, c.code, stateName(res.Claim.State))
	case res.Code == machine.OK:
		if c.state.Final() && !res.Claim.State.Final() {
			return broken(AtMostOnce, "claim %v was %s, a retry is now %s", c.id, stateName(c.state), stateName(res.Claim.State))
		}
		return r.answered(c, res)
	case res.Code == machine.RequestReused && len(c.spec.Names) > 0 && !same, c.state.Final(), c.code != machine.OK:
		return nil
	}
	return broken(WrongAnswer, "live claim %v was refused with code %d", c.id, res.Code)
}

func (r *replay) answered(c *claim, res *machine.Result) *Violation {
	if res.Claim.State != c.state {
		return broken(WrongAnswer, "claim %v is %s, the answer was %s", c.id, stateName(c.state), stateName(res.Claim.State))
	}
	if c.state == machine.Granted && res.Claim.Token != c.token {
		return broken(Tokens, "claim %v was granted with %d, the answer was %d", c.id, c.token, res.Claim.Token)
	}
	return nil
}

// refused checks the refusal of an unknown claim.
func (r *replay) refused(s *machine.Spec, res *machine.Result) *Violation {
	switch res.Code {
	case machine.ModeMismatch:
		for _, text := range s.Names {
			if !r.name(text).suits(s) {
				r.count(RefusedMode)
				return nil
			}
		}
		return broken(WrongAnswer, "%q refused for its mode, and is not in use with another", s.Names)
	case machine.NotReady:
		if r.table.floor {
			return broken(WrongAnswer, "not ready behind the token floor")
		}
		return broken(WrongAnswer, "%q was asked for in the log before a token could be given", s.Names)
	case machine.StaleRequest, machine.QuotaExceeded, machine.OutOfRange:
	default:
		return broken(WrongAnswer, "a new claim was refused with code %d", res.Code)
	}
	return nil
}

func (r *replay) cancel(c machine.Cancel, res *machine.Result) *Violation {
	k := r.claim(machine.ClaimID{Session: c.Session, Seq: c.Seq})
	s, v := r.live(c.Session, res)
	if s == nil {
		return r.confirm(k, v)
	}
	if k == nil {
		if res.Code == machine.OK {
			r.count(CancelFirst)
			s.claims[c.Seq] = &claim{id: machine.ClaimID{Session: c.Session, Seq: c.Seq}, state: machine.Cancelled}
		}
		return nil
	}
	if res.Code != machine.OK && !k.state.Final() && k.code == machine.OK {
		return broken(WrongAnswer, "cancel of live claim %v was refused with code %d", k.id, res.Code)
	}
	r.end(k, machine.Cancelled)
	return r.match(r.settle(), owedToOwners)
}

func (r *replay) release(c machine.Release, res *machine.Result) *Violation {
	k := r.claim(machine.ClaimID{Session: c.Session, Seq: c.Seq})
	if k != nil && (!k.held || k.token != c.Token) {
		k = nil
	}
	s, v := r.live(c.Session, res)
	if s == nil {
		return r.confirm(k, v)
	}
	if k != nil {
		r.end(k, machine.Released)
	}
	if res.Code == machine.OK && res.Claim.State == machine.Released && (s.claims[c.Seq] == nil || s.claims[c.Seq].state != machine.Released) {
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
func (r *replay) end(k *claim, s machine.State) {
	if k.state == machine.Queued {
		r.dequeue(k)
	}
	if k.held {
		if k.state.Final() {
			r.count(ConfirmedEnd)
		}
		r.free(k)
	}
	if !k.state.Final() && k.code == machine.OK {
		k.state = s
	}
}

func (r *replay) close(c machine.CloseSession, res *machine.Result) *Violation {
	s := r.sessions[c.Session]
	if s == nil {
		return nil
	}
	for _, k := range s.order {
		r.end(k, machine.Released)
	}
	if s.ended == machine.OK {
		s.ended = machine.SessionUnknown
	}
	return r.match(r.settle(), owedToOwners)
}
