package machine

import "github.com/lockstep-dev/lockstep/server/command"

// close turns a granted claim into a closing one: over for its owner, but still among the holders
// until the owner confirms or the delay has passed.
func (m *Machine) close(c *claim, delay command.Millis) {
	c.closing, c.delay = true, delay
	c.session.closing = insertClaim(c.session.closing, c)
	m.counts.Holders--
	m.counts.Closing++
	for i := range c.links {
		m.mark(c.links[i].name)
	}
	m.timer(command.DelayStarted, c.id(), delay)
}

// confirm ends the closing. The caller settles.
func (m *Machine) confirm(c *claim) {
	s := c.session
	m.changing(s.id)
	m.setDelayEnd(c, 0)
	s.closing = removeClaim(s.closing, c)
	s.weigh(-c.size())
	m.counts.Closing--
	m.counts.Holders++ // free decrements it again
	m.free(c)
	m.timer(command.DelayOver, c.id(), 0)
	if s.ended != command.OK && len(s.closing) == 0 {
		m.shards[shardOf(s.id)].leaving.remove(s.id)
		s.weigh(-s.bytes)
	}
}

func (m *Machine) confirmAll(s *session) {
	for len(s.closing) > 0 {
		m.confirm(s.closing[0])
	}
}

// expire ends the sessions in the order that the command lists them.
func (m *Machine) expire(term uint64, c *command.Expire) command.Result {
	if c.Term != term {
		return command.Result{Code: command.Void}
	}
	var sessions []*session
	for _, id := range c.Sessions {
		if s := m.session(id); s != nil && s.ended == command.OK {
			m.changing(s.id)
			s.ended = command.SessionExpired // so that an id listed twice counts once
			sessions = append(sessions, s)
		}
	}
	m.endSessions(sessions, ending{code: command.SessionExpired})
	return command.Result{}
}

func (m *Machine) endWait(term uint64, e *command.EndWait) command.Result {
	if e.Term != term {
		return command.Result{Code: command.Void}
	}
	for _, id := range e.Claims {
		s := m.session(id.Session)
		if s == nil {
			continue
		}
		c := s.find(id.Seq)
		if c == nil || c.granted {
			continue
		}
		m.changing(s.id)
		m.unqueue(c)
		m.record(command.EventCancelled, c, "", "its wait ran out")
		m.settled(c, command.WaitEnded, "", "")
	}
	m.settle()
	return command.Result{}
}

func (m *Machine) endDelay(term uint64, e *command.EndDelay) command.Result {
	if e.Term != term {
		return command.Result{Code: command.Void}
	}
	for _, id := range e.Claims {
		if c := m.findClosing(id); c != nil {
			m.confirm(c)
		}
	}
	m.settle()
	return command.Result{}
}

func (m *Machine) findClosing(id command.ClaimID) *claim {
	s := m.session(id.Session)
	if s == nil {
		s = m.leaving(id.Session)
	}
	if s == nil {
		return nil
	}
	return s.findClosing(id.Seq)
}
