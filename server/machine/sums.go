package machine

import "github.com/lockstep-dev/lockstep/server/command"

// The total size of the state is counted in bytes: the text of sessions, claims and remembered
// claims as a snapshot has it, plus about the most that a snapshot needs for the numbers that go
// with it. In memory it takes some four times as much.
const (
	sessionBytes = 64
	claimBytes   = 96
	outcomeBytes = 48
)

func (s *session) size() int { return sessionBytes + labelBytes(s.metadata) }

func (c *claim) size() int { return claimSize(&c.spec, c.nonce) }

func claimSize(s *command.Spec, nonce string) int {
	n := claimBytes + len(nonce) + labelBytes(s.Metadata)
	for _, name := range s.Names {
		n += 2 + len(name)
	}
	return n
}

func (o *outcome) size() int { return outcomeBytes + len(o.nonce) + len(o.by) + len(o.reason) }

func labelBytes(labels []command.Label) (n int) {
	for _, l := range labels {
		n += 4 + len(l.Key) + len(l.Value)
	}
	return n
}

// weigh adds n to the byte counts.
func (s *session) weigh(n int) {
	s.bytes += n
	s.counts.Bytes += n
}

// weighed returns what s.bytes must be while the session is in a table.
func (s *session) weighed() int {
	n := s.size()
	for _, list := range [...][]*claim{s.claims, s.closing} {
		for _, c := range list {
			n += c.size()
		}
	}
	for i := range s.outcomes {
		n += s.outcomes[i].size()
	}
	return n
}

// Exceed reports whether all clients together have more than so many claims, or bytes.
func (c Counts) Exceed(claims, bytes int) bool {
	return c.Holders+c.Waiters+c.Closing > claims || c.Bytes > bytes
}

// Usage returns what a session has: its claims, closing ones too, and its bytes as
// Limits.StateBytes counts them.
func (m *Machine) Usage(id command.SessionID) (claims, bytes int) {
	s := m.session(id)
	if s == nil {
		s = m.leaving(id)
	}
	if s == nil {
		return 0, 0
	}
	return len(s.claims) + len(s.closing), s.bytes
}

// Adds returns how many claims and bytes of Limits.StateBytes a command of a session adds: none
// when it is about a claim that is known.
func (m *Machine) Adds(c command.Command) (claims, bytes int) {
	switch c := c.(type) {
	case command.Acquire:
		if s := m.session(c.Session); s != nil && !s.knows(&c) {
			return 1, claimSize(&c.Spec, c.Nonce)
		}
	case command.Cancel: // of a number that is not known, which is remembered
		if s := m.session(c.Session); s != nil && s.numbered && s.find(c.Seq) == nil && s.outcome(c.Seq) == nil {
			return 0, outcomeBytes
		}
	}
	return 0, 0
}

// knows reports whether the claim that an Acquire asks for has been made.
func (s *session) knows(a *command.Acquire) bool {
	if !s.numbered {
		return s.nonces[a.Nonce] != 0
	}
	return s.find(a.Seq) != nil || s.outcome(a.Seq) != nil
}

// checkSums refuses a claim, or more bytes, if that would exceed the total over all clients.
func (m *Machine) checkSums(claims, bytes int) command.Result {
	if !m.limits.Sums() {
		return command.Result{}
	}
	if m.counts.Holders+m.counts.Waiters+m.counts.Closing+claims > int(m.limits.ClaimsTotal) {
		return m.refused(command.QuotaExceeded, "claims of the whole cluster", m.limits.ClaimsTotal)
	}
	if m.counts.Bytes+bytes > int(m.limits.StateBytes) {
		return m.refused(command.QuotaExceeded, "bytes of sessions and claims of the whole cluster", m.limits.StateBytes)
	}
	return command.Result{}
}
