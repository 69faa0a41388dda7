package check

import "github.com/lockstep-dev/lockstep/server/command"

// Names of noteworthy events, for the counters of a report.
const (
	ExpiredQueued  = "session expired while its claim was queued"
	ExpiredHolding = "session expired while it held a lock"
	StaleIgnored   = "stale leader's command ignored"
	WaitEnded      = "wait ran out in the queue"
	DelayEnded     = "closing claim freed by its delay"
	ConfirmedEnd   = "closing claim freed by its holder"
	RevokedClaim   = "claim revoked"
	RevokedNow     = "claim revoked with --now"
	RevokedSession = "session revoked"
	Delayed        = "lock delay begun"
	SharedToken    = "shared holders with one token"
	Repeated       = "acquire repeated"
	CancelFirst    = "cancel before its acquire"
	RefusedEnded   = "request of an ended session refused"
	RefusedMode    = "mode mismatch"
	GrantedMulti   = "claim on several names granted"
	GrantedPermits = "permits granted"
	GrantedWaiter  = "waiter granted"
	WrittenLease   = "end of a lease written down"
	WrittenDelay   = "end of a delay written down"
	Rewritten      = "end of a lease taken back"
)

func (r *replay) expire(c command.Expire) *Violation {
	if c.Term != r.term {
		r.count(StaleIgnored)
		return r.match(nil, owedToOwners)
	}
	var ended []*session
	for _, id := range c.Sessions {
		s := r.sessions[id]
		if s == nil || s.ended != command.OK {
			continue
		}
		if v := r.early(s); v != nil {
			return v
		}
		s.ended = command.SessionExpired
		ended = append(ended, s)
		r.ended = append(r.ended, s)
		r.expireQueued(s)
	}
	for _, s := range ended {
		r.expireHeld(s)
	}
	return r.match(r.settle(), owedToOwners)
}

func (r *replay) expireQueued(s *session) {
	for _, k := range s.order {
		if k.state == command.Queued {
			r.count(ExpiredQueued)
			r.dequeue(k)
			k.state = command.Expired
		}
	}
}

func (r *replay) expireHeld(s *session) {
	for _, k := range s.order {
		if k.state != command.Granted {
			continue
		}
		r.count(ExpiredHolding)
		k.state = command.Expired
		if k.spec.LockDelay > 0 {
			r.count(Delayed)
			k.since, k.counted = r.begin()
		} else {
			r.free(k)
		}
	}
}

func (r *replay) checkpoint(c command.CheckpointLeases) {
	if len(c.Sessions) > 0 {
		r.count(WrittenLease)
	}
	if len(c.Delays) > 0 {
		r.count(WrittenDelay)
	}
}

func (r *replay) endWait(c command.EndWait) *Violation {
	if c.Term != r.term {
		r.count(StaleIgnored)
		return r.match(nil, owedToOwners)
	}
	for _, id := range c.Claims {
		k := r.claim(id)
		if k == nil || k.state != command.Queued {
			continue
		}
		r.count(WaitEnded)
		r.dequeue(k)
		k.state = command.WaitEnded
		r.owed = append(r.owed, k)
	}
	return r.match(r.settle(), owedToOwners)
}

func (r *replay) endDelay(c command.EndDelay) *Violation {
	if c.Term != r.term {
		r.count(StaleIgnored)
		return r.match(nil, owedToOwners)
	}
	for _, id := range c.Claims {
		if k := r.claim(id); k != nil && k.held && k.state.Final() {
			r.count(DelayEnded)
			r.free(k)
		}
	}
	return r.match(r.settle(), owedToOwners)
}

func (r *replay) revoke(c command.Revoke) *Violation {
	s := r.sessions[c.Claim.Session]
	if s == nil {
		return r.match(nil, owedToOwners)
	}
	if c.Claim.Seq == 0 {
		r.revokeSession(s, c.Now)
		return r.match(r.settle(), owedToOwners)
	}
	k := s.claims[c.Claim.Seq]
	switch {
	case k == nil || k.token != c.Token || !k.held:
	case k.state == command.Granted:
		r.owed = append(r.owed, k)
		r.revokeClaim(k, c.Now)
	case c.Now:
		r.hurry(k)
	}
	return r.match(r.settle(), owedToOwners)
}

func (r *replay) revokeClaim(k *claim, now bool) {
	r.count(RevokedClaim)
	k.state = command.Revoked
	k.since, k.counted = r.begin()
	if now {
		r.count(RevokedNow)
		k.unsafe = true
		r.free(k)
	}
}

// hurry frees a closing claim at an operator's request.
func (r *replay) hurry(k *claim) {
	r.count(RevokedNow)
	k.unsafe = true
	r.free(k)
}

func (r *replay) revokeSession(s *session, now bool) {
	for _, k := range s.order {
		if now && k.held && k.state.Final() {
			r.hurry(k)
		}
	}
	if s.ended != command.OK {
		return
	}
	r.count(RevokedSession)
	s.ended = command.SessionRevoked
	r.ended = append(r.ended, s)
	for _, k := range s.order {
		switch k.state {
		case command.Queued:
			r.dequeue(k)
			k.state = command.Revoked
		case command.Granted:
			r.revokeClaim(k, now)
		}
	}
}
