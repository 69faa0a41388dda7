package machine

// revokeDelay is how long a revoked holder may believe in its grant without hearing of
// the end, before the leader adds its grace: its lease, or the lock delay it asked for.
func revokeDelay(c *claim) Millis { return max(c.session.ttl, c.spec.LockDelay) }

// close makes a granted claim a closing one: over for its owner, but still among the
// holders until the owner confirms or the delay has passed.
func (m *Machine) close(c *claim, delay Millis) {
	c.closing, c.delay = true, delay
	c.session.closing = insertClaim(c.session.closing, c)
	m.counts.Holders--
	m.counts.Closing++
	for i := range c.links {
		m.mark(c.links[i].name)
	}
	m.timer(DelayStarted, c.id(), delay)
}

// confirm ends the closing. The caller settles.
func (m *Machine) confirm(c *claim) {
	s := c.session
	m.changing(s.id)
	s.closing = removeClaim(s.closing, c)
	m.counts.Closing--
	m.counts.Holders++ // free takes it away again
	m.free(c)
	m.timer(DelayOver, c.id(), 0)
	if s.ended != OK && len(s.closing) == 0 {
		m.shards[shardOf(s.id)].leaving.remove(s.id)
	}
}

func (m *Machine) confirmAll(s *session) {
	for len(s.closing) > 0 {
		m.confirm(s.closing[0])
	}
}

func (m *Machine) release(r *Release) Result {
	s := m.session(r.Session)
	if s == nil {
		return m.releaseLate(r)
	}
	if c := s.find(r.Seq); c != nil {
		if !c.granted || c.token != r.Token {
			return Result{Code: NotHeld, Claim: c.status()}
		}
		m.changing(s.id)
		m.free(c)
		m.record(EventReleased, c, "", "")
		m.settled(c, Released, "", "")
		m.settle()
		return Result{Claim: ClaimStatus{Seq: c.seq, State: Released, Token: c.token, Change: c.change}}
	}
	known := m.confirmOf(s, r.Seq, r.Token)
	if o := s.outcome(r.Seq); o != nil {
		return Result{Code: o.released(r.Token), Claim: o.status()}
	}
	switch {
	case known:
		return Result{Code: Lost}
	case s.forgot(r.Seq):
		return Result{Code: StaleRequest}
	default:
		return Result{Code: NotHeld}
	}
}

// forgot reports whether an unknown number may have been known once.
func (s *session) forgot(seq uint64) bool {
	if s.numbered {
		return seq < s.floor
	}
	return seq <= s.last
}

// released answers a Release of a claim that is over.
func (o *outcome) released(token Token) Code {
	switch {
	case o.token != token || token == 0:
		return NotHeld
	case o.byService():
		return Lost
	default: // its owner ended it before
		return OK
	}
}

// releaseLate is a Release of a session that has ended. It may still confirm.
func (m *Machine) releaseLate(r *Release) Result {
	if s := m.leaving(r.Session); s != nil && m.confirmOf(s, r.Seq, r.Token) {
		return Result{Code: Lost}
	}
	return Result{Code: m.SessionEnd(r.Session)}
}

// confirmOf ends the closing of the owner's claim with this token, if there is one.
func (m *Machine) confirmOf(s *session, seq uint64, token Token) bool {
	c := s.findClosing(seq)
	if c == nil || c.token != token {
		return false
	}
	m.confirm(c)
	m.settle()
	return true
}

func (m *Machine) cancel(c *Cancel) Result {
	s := m.session(c.Session)
	if s == nil {
		return m.cancelLate(c)
	}
	if c.Seq == 0 {
		return Result{Code: Malformed}
	}
	m.changing(s.id)
	s.hear(c.Floor, c.Seen)
	if live := s.find(c.Seq); live != nil {
		return m.cancelLive(live)
	}
	if closing := s.findClosing(c.Seq); closing != nil {
		m.confirm(closing)
		m.settle()
	}
	if o := s.outcome(c.Seq); o != nil {
		return o.result()
	}
	if !s.numbered {
		if s.forgot(c.Seq) {
			return Result{Code: StaleRequest}
		}
		return Result{Code: NotQueued}
	}
	if r := m.outside(s, c.Seq, s.floor); r.Code != OK {
		return r
	}
	o := outcome{seq: c.Seq, state: Cancelled}
	s.remember(o, &m.limits)
	return Result{Claim: o.status()}
}

func (m *Machine) cancelLive(c *claim) Result {
	if c.granted {
		m.free(c)
	} else {
		m.unqueue(c)
	}
	m.record(EventCancelled, c, "", "")
	m.settled(c, Cancelled, "", "")
	m.settle()
	return Result{Claim: ClaimStatus{Seq: c.seq, State: Cancelled, Token: c.token, Change: c.change}}
}

// cancelLate is a Cancel of a session that has ended. It may still confirm.
func (m *Machine) cancelLate(c *Cancel) Result {
	if s := m.leaving(c.Session); s != nil {
		if closing := s.findClosing(c.Seq); closing != nil {
			m.confirm(closing)
			m.settle()
		}
	}
	return Result{Code: m.SessionEnd(c.Session)}
}

// expire ends the sessions in the order that the command lists them.
func (m *Machine) expire(term uint64, c *Expire) Result {
	if c.Term != term {
		return Result{Code: Void}
	}
	var sessions []*session
	for _, id := range c.Sessions {
		if s := m.session(id); s != nil && s.ended == OK {
			m.changing(s.id)
			s.ended = SessionExpired // so that an id listed twice counts once
			sessions = append(sessions, s)
		}
	}
	m.endSessions(sessions, ending{code: SessionExpired})
	return Result{}
}

func (m *Machine) endWait(term uint64, e *EndWait) Result {
	if e.Term != term {
		return Result{Code: Void}
	}
	for _, id := range e.Claims {
		s := m.session(id.Session)
		if s == nil {
			continue
		}
		c := s.find(id.Seq)
		if c == nil || c.granted || !c.spec.HasWait {
			continue
		}
		m.changing(s.id)
		m.unqueue(c)
		m.record(EventCancelled, c, "", "its wait ran out")
		m.settled(c, WaitEnded, "", "")
	}
	m.settle()
	return Result{}
}

func (m *Machine) endDelay(term uint64, e *EndDelay) Result {
	if e.Term != term {
		return Result{Code: Void}
	}
	for _, id := range e.Claims {
		if c := m.findClosing(id); c != nil {
			m.confirm(c)
		}
	}
	m.settle()
	return Result{}
}

func (m *Machine) findClosing(id ClaimID) *claim {
	s := m.session(id.Session)
	if s == nil {
		s = m.leaving(id.Session)
	}
	if s == nil {
		return nil
	}
	return s.findClosing(id.Seq)
}

func (m *Machine) revoke(r *Revoke) Result {
	if r.Claim.Seq == 0 {
		return m.revokeSession(r)
	}
	if c := m.findClosing(r.Claim); c != nil && c.token == r.Token {
		return m.hurry(r, c)
	}
	s := m.session(r.Claim.Session)
	if s == nil {
		return Result{}
	}
	c := s.find(r.Claim.Seq)
	if c == nil || !c.granted || c.token != r.Token {
		return Result{}
	}
	m.changing(s.id)
	m.record(EventRevoked, c, r.By, r.Reason)
	if r.Now {
		m.free(c)
	} else {
		m.close(c, revokeDelay(c))
	}
	m.settled(c, Revoked, r.By, r.Reason)
	m.settle()
	return Result{Revoked: 1}
}

// hurry frees a claim that is closing already, if the operator says now.
func (m *Machine) hurry(r *Revoke, closing ...*claim) Result {
	if !r.Now {
		return Result{}
	}
	for _, c := range closing {
		m.confirm(c)
	}
	m.settle()
	return Result{Revoked: uint32(len(closing))}
}

func (m *Machine) revokeSession(r *Revoke) Result {
	if s := m.session(r.Claim.Session); s != nil {
		how := ending{code: SessionRevoked, by: r.By, reason: r.Reason, now: r.Now}
		return Result{Revoked: uint32(m.endSessions([]*session{s}, how))}
	}
	if s := m.leaving(r.Claim.Session); s != nil {
		return m.hurry(r, append([]*claim(nil), s.closing...)...)
	}
	return Result{}
}
