package machine

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
		status := m.settled(c, Released, "", "")
		m.settle()
		return Result{Claim: status}
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

// forgot reports whether an unknown number may have been known earlier.
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
	default: // its owner ended it earlier
		return OK
	}
}

// releaseLate handles a Release of a session that has ended. It may still confirm.
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
	s.hear(c.Floor, c.Seen, &m.limits)
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
	if r := m.checkSums(0, outcomeBytes); r.Code != OK {
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
	status := m.settled(c, Cancelled, "", "")
	m.settle()
	return Result{Claim: status}
}

// cancelLate handles a Cancel of a session that has ended. It may still confirm.
func (m *Machine) cancelLate(c *Cancel) Result {
	if s := m.leaving(c.Session); s != nil {
		if closing := s.findClosing(c.Seq); closing != nil {
			m.confirm(closing)
			m.settle()
		}
	}
	return Result{Code: m.SessionEnd(c.Session)}
}
