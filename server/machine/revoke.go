package machine

import "github.com/lockstep-dev/lockstep/server/command"

// revokeDelay is how long a revoked holder may believe in its grant without learning of the end,
// before the leader adds its grace: its lease, or the lock delay it asked for.
func revokeDelay(c *claim) command.Millis { return max(c.session.ttl, c.spec.LockDelay) }

func (m *Machine) revoke(r *command.Revoke) command.Result {
	if r.Claim.Seq == 0 {
		return m.revokeSession(r)
	}
	if c := m.findClosing(r.Claim); c != nil && c.token == r.Token {
		return m.hurry(r, c)
	}
	s := m.session(r.Claim.Session)
	if s == nil {
		return command.Result{}
	}
	c := s.find(r.Claim.Seq)
	if c == nil || !c.granted || c.token != r.Token {
		return command.Result{}
	}
	m.changing(s.id)
	m.record(command.EventRevoked, c, r.By, r.Reason)
	if r.Now {
		m.free(c)
	} else {
		m.close(c, revokeDelay(c))
	}
	m.settled(c, command.Revoked, r.By, r.Reason)
	m.settle()
	return command.Result{Revoked: 1}
}

// hurry frees a claim that is already closing, if the operator asks for that.
func (m *Machine) hurry(r *command.Revoke, closing ...*claim) command.Result {
	if !r.Now {
		return command.Result{}
	}
	for _, c := range closing {
		m.confirm(c)
	}
	m.settle()
	return command.Result{Revoked: uint32(len(closing))}
}

func (m *Machine) revokeSession(r *command.Revoke) command.Result {
	if s := m.session(r.Claim.Session); s != nil {
		how := ending{code: command.SessionRevoked, by: r.By, reason: r.Reason, now: r.Now}
		return command.Result{Revoked: uint32(m.endSessions([]*session{s}, how))}
	}
	if s := m.leaving(r.Claim.Session); s != nil {
		return m.hurry(r, append([]*claim(nil), s.closing...)...)
	}
	return command.Result{}
}
