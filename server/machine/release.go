package machine

import "github.com/lockstep-dev/lockstep/server/command"

func (m *Machine) release(r *command.Release) command.Result {
	s := m.session(r.Session)
	if s == nil {
		return m.releaseLate(r)
	}
	if c := s.find(r.Seq); c != nil {
		if !c.granted || c.token != r.Token {
			return command.Result{Code: command.NotHeld, Claim: c.status()}
		}
		m.changing(s.id)
		m.free(c)
		m.record(command.EventReleased, c, "", "")
		status := m.settled(c, command.Released, "", "")
		m.settle()
		return command.Result{Claim: status}
	}
	known := m.confirmOf(s, r.Seq, r.Token)
	if o := s.outcome(r.Seq); o != nil {
		return command.Result{Code: o.released(r.Token), Claim: o.status()}
	}
	switch {
	case known:
		return command.Result{Code: command.Lost}
	case s.forgot(r.Seq):
		return command.Result{Code: command.StaleRequest}
	default:
		return command.Result{Code: command.NotHeld}
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
func (o *outcome) released(token command.Token) command.Code {
	switch {
	case o.token != token || token == 0:
		return command.NotHeld
	case o.byService():
		return command.Lost
	default: // its owner ended it earlier
		return command.OK
	}
}

// releaseLate handles a Release of a session that has ended. It may still confirm.
func (m *Machine) releaseLate(r *command.Release) command.Result {
	if s := m.leaving(r.Session); s != nil && m.confirmOf(s, r.Seq, r.Token) {
		return command.Result{Code: command.Lost}
	}
	return command.Result{Code: m.SessionEnd(r.Session)}
}

// confirmOf ends the closing of the owner's claim with this token, if there is one.
func (m *Machine) confirmOf(s *session, seq uint64, token command.Token) bool {
	c := s.findClosing(seq)
	if c == nil || c.token != token {
		return false
	}
	m.confirm(c)
	m.settle()
	return true
}

func (m *Machine) cancel(c *command.Cancel) command.Result {
	s := m.session(c.Session)
	if s == nil {
		return m.cancelLate(c)
	}
	if c.Seq == 0 {
		return command.Result{Code: command.Malformed}
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
			return command.Result{Code: command.StaleRequest}
		}
		return command.Result{Code: command.NotQueued}
	}
	if r := m.outside(s, c.Seq, s.floor); r.Code != command.OK {
		return r
	}
	if r := m.checkSums(0, outcomeBytes); r.Code != command.OK {
		return r
	}
	o := outcome{seq: c.Seq, state: command.Cancelled}
	s.remember(o, &m.limits)
	return command.Result{Claim: o.status()}
}

func (m *Machine) cancelLive(c *claim) command.Result {
	if c.granted {
		m.free(c)
	} else {
		m.unqueue(c)
	}
	m.record(command.EventCancelled, c, "", "")
	status := m.settled(c, command.Cancelled, "", "")
	m.settle()
	return command.Result{Claim: status}
}

// cancelLate handles a Cancel of a session that has ended. It may still confirm.
func (m *Machine) cancelLate(c *command.Cancel) command.Result {
	if s := m.leaving(c.Session); s != nil {
		if closing := s.findClosing(c.Seq); closing != nil {
			m.confirm(closing)
			m.settle()
		}
	}
	return command.Result{Code: m.SessionEnd(c.Session)}
}
