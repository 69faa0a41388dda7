package machine

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
)

// keeps reports whether every end of a claim of a client-numbered session has a change number, and
// a machine-numbered session remembers what its client needs until floor and seen allow it to
// forget.
func keeps(l *command.Limits) bool { return l.FeatureLevel >= 2 }

func (m *Machine) changeLimits(c *command.SetLimits) command.Result {
	l := c.Limits
	if l.FeatureLevel > command.FeatureLevel { // decoding refuses it earlier
		panic(fmt.Errorf("%w: entry %d has feature level %d, this build supports %d",
			command.ErrNewer, m.index, l.FeatureLevel, command.FeatureLevel))
	}
	if broken := l.Broken(); broken != "" {
		return command.Result{Code: command.OutOfRange, Limit: broken}
	}
	if l.FeatureLevel < m.limits.FeatureLevel {
		return command.Result{Code: command.OutOfRange, Limit: fmt.Sprintf("feature level: at least %d", m.limits.FeatureLevel)}
	}
	hashed := hashes(&m.limits)
	m.setLimits(l)
	if hashes(&m.limits) && !hashed {
		m.hashSecrets()
	}
	return command.Result{}
}

func (m *Machine) setLimits(l command.Limits) {
	l = l.At(l.FeatureLevel, l) // as a restored snapshot would have them
	m.limits = l
	m.history.resize(int(l.HistoryBytes))
	m.abnormal.resize(int(l.AbnormalBytes))
}

// ready reports whether a token can be issued.
func (m *Machine) ready() bool {
	return m.nextToken != 0 && m.nextToken <= command.MaxToken && !m.recovery.Pending()
}

// checkReady refuses while no token can be issued.
func (m *Machine) checkReady() command.Result {
	switch {
	case m.Exhausted():
		return command.Result{Code: command.Exhausted}
	case !m.ready():
		return command.Result{Code: command.NotReady}
	}
	return command.Result{}
}

// Exhausted reports whether all tokens have been issued: nothing will be granted again.
func (m *Machine) Exhausted() bool { return m.nextToken > command.MaxToken }

func (m *Machine) setTokenFloor(c *command.SetTokenFloor) command.Result {
	if c.Floor > command.MaxToken {
		return command.Result{Code: command.OutOfRange, Limit: fmt.Sprintf("token floor: at most %d", command.MaxToken)}
	}
	m.nextToken = max(m.nextToken+1, c.Floor)
	m.recovery.FloorDue = false
	m.finishRecovery()
	return command.Result{}
}

// Limits returns the limits in force.
func (m *Machine) Limits() command.Limits { return m.limits }

// Check predicts, before a command is proposed, whether it would be refused: it then returns the
// refusal and false. Otherwise it returns true, and the command may still be refused when it is
// applied. Check refuses for reasons that no command in flight can change, and for full queues and
// tables. It also returns NotReady while no token can be issued: only the caller knows whether the
// command that ends this state is in flight.
func (m *Machine) Check(c command.Command) (command.Result, bool) {
	r := command.Result{}
	switch c := c.(type) {
	case command.OpenSession:
		r = m.checkOpen(&c)
	case command.Acquire:
		r = m.checkAcquire(&c)
	case command.Cancel:
		r = m.checkCancel(&c)
	case command.Release:
		r = m.checkOwner(c.Session)
	}
	return r, r.Code == command.OK
}

func (m *Machine) checkOpen(c *command.OpenSession) command.Result {
	switch {
	case c.TTL == 0:
		return command.Result{Code: command.Malformed}
	case uint32(m.counts.Sessions) >= m.limits.Sessions:
		return m.refused(command.QuotaExceeded, "sessions", m.limits.Sessions)
	}
	return m.checkSums(0, sessionBytes+labelBytes(c.Metadata))
}

// checkOwner refuses a session that has ended, unless it can still confirm.
func (m *Machine) checkOwner(id command.SessionID) command.Result {
	if m.session(id) == nil && m.leaving(id) == nil {
		return command.Result{Code: m.SessionEnd(id)}
	}
	return command.Result{}
}

func (m *Machine) checkCancel(c *command.Cancel) command.Result {
	s := m.session(c.Session)
	switch {
	case s == nil:
		return m.checkOwner(c.Session)
	case c.Seq == 0:
		return command.Result{Code: command.Malformed}
	case !s.numbered || s.find(c.Seq) != nil || s.outcome(c.Seq) != nil:
		return command.Result{}
	}
	if r := m.checkWindow(s, c.Seq, c.Floor); r.Code != command.OK {
		return r
	}
	return m.checkSums(0, outcomeBytes)
}

// checkWindow refuses an unknown number that is too far ahead of the floor.
func (m *Machine) checkWindow(s *session, seq, floor uint64) command.Result {
	if r := m.outside(s, seq, max(s.floor, floor)); r.Code == command.OutOfRange {
		return r
	}
	return command.Result{}
}

func (m *Machine) checkAcquire(a *command.Acquire) command.Result {
	s := m.session(a.Session)
	if s == nil {
		return command.Result{Code: m.SessionEnd(a.Session)}
	}
	if !s.allows(a) {
		return command.Result{Code: command.Malformed}
	}
	if s.knows(a) {
		return command.Result{}
	}
	if s.numbered {
		if r := m.checkWindow(s, a.Seq, a.Floor); r.Code != command.OK {
			return r
		}
	}
	if r := m.checkReady(); r.Code != command.OK {
		return r
	}
	if r := m.checkSums(1, claimSize(&a.Spec, a.Nonce)); r.Code != command.OK {
		return r
	}
	for _, text := range a.Spec.Names {
		n := m.find(text, hashText(0, text))
		if n != nil && !a.Spec.Try() && n.waiters.n >= int(m.limits.WaitersPerName) {
			return m.refused(command.QuotaExceeded, "waiters of a name", m.limits.WaitersPerName)
		}
	}
	return command.Result{}
}
