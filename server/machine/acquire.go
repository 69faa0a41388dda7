package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-dev/lockstep/server/command"
)

// MaxPermits bounds the capacity of a semaphore, as the contract does.
const MaxPermits = 1 << 20

// wellFormed checks what callers check before they propose. An entry that breaks these rules was
// proposed by a broken node; refusing it is better than stopping the cluster.
func wellFormed(s *command.Spec) bool {
	if len(s.Names) < 1 || len(s.Names) > command.MaxNames {
		return false
	}
	for i, n := range s.Names {
		if n == "" || slices.Contains(s.Names[:i], n) {
			return false
		}
	}
	switch s.Mode {
	case command.Exclusive:
		return s.Weight == 0 && s.Capacity == 0
	case command.Shared:
		return s.Weight == 0 && s.Capacity == 0 && len(s.Names) == 1
	case command.Permits:
		return s.Weight >= 1 && s.Weight <= s.Capacity && s.Capacity <= MaxPermits && len(s.Names) == 1
	default:
		return false
	}
}

// allows reports whether the spec is well formed and the claim is numbered by the side that numbers
// the session's claims.
func (s *session) allows(a *command.Acquire) bool {
	return wellFormed(&a.Spec) && s.numbered == (a.Seq != 0)
}

func (m *Machine) acquire(a *command.Acquire) command.Result {
	s := m.session(a.Session)
	if s == nil {
		return command.Result{Code: m.SessionEnd(a.Session)}
	}
	if !s.allows(a) {
		return command.Result{Code: command.Malformed}
	}
	m.changing(s.id)
	s.hear(a.Floor, a.Seen, &m.limits)
	seq := a.Seq
	if !s.numbered {
		seq = s.nonces[a.Nonce] // zero for a new nonce and for none
	}
	print := fingerprint(&a.Spec)
	if r, known := m.repeated(s, seq, print); known && !mutantDedupe {
		return r
	}
	if s.numbered {
		if r := m.outside(s, seq, s.floor); r.Code != command.OK {
			return r
		}
	} else {
		// Sent before the client let go of nonces: this may be one of them.
		if a.Nonce != "" && a.Floor < s.floor {
			return command.Result{Code: command.StaleRequest}
		}
		s.last++
		seq = s.last
		a.Nonce = strings.Clone(a.Nonce) // it outlives the command whose memory it shares
	}
	return m.place(s, a, seq, print)
}

// repeated answers the Acquire of a claim that is already known.
func (m *Machine) repeated(s *session, seq, print uint64) (command.Result, bool) {
	if seq == 0 {
		return command.Result{}, false
	}
	if c := s.find(seq); c != nil {
		if c.print != print {
			return command.Result{Code: command.RequestReused}, true
		}
		r := command.Result{Claim: c.status()}
		if !c.granted {
			r.Claim.Blockers = c.blockers()
		}
		return r, true
	}
	if o := s.outcome(seq); o != nil {
		if o.print != 0 && o.print != print {
			return command.Result{Code: command.RequestReused}, true
		}
		return o.result(), true
	}
	return command.Result{}, false
}

// place decides on a new claim: granted, queued, busy or refused.
func (m *Machine) place(s *session, a *command.Acquire, seq, print uint64) command.Result {
	if !m.ready() {
		return command.Result{Code: command.NotReady}
	}
	spec := &a.Spec
	if sums := m.checkSums(1, claimSize(spec, a.Nonce)); sums.Code != command.OK {
		return sums // not remembered: that would take bytes itself
	}
	done := outcome{seq: seq, print: print, nonce: a.Nonce}
	if s.weight+uint32(len(spec.Names)) > m.limits.ClaimsPerSession {
		return m.full(s, done)
	}
	var found [command.MaxNames]*name
	var hashes [command.MaxNames]uint64
	open, short := true, true // it can be granted now; its queues are not full
	for i, text := range spec.Names {
		hashes[i] = hashText(0, text)
		n := m.find(text, hashes[i])
		found[i] = n
		if n == nil {
			continue
		}
		if !n.matches(spec) {
			return m.refuse(s, done, command.Result{Code: command.ModeMismatch})
		}
		open = open && n.waiters.n == 0 && n.takes(spec)
		short = short && n.waiters.n < int(m.limits.WaitersPerName)
	}
	if !open && spec.Try() {
		done.state, done.names = command.Busy, uint8(len(spec.Names))
		s.weight += uint32(len(spec.Names))
		s.remember(done, &m.limits)
		r := command.Result{Claim: done.status()}
		r.Claim.Blockers = blockers(nil, found[:len(spec.Names)])
		return r
	}
	if !open && !short {
		return m.refuse(s, done, m.refused(command.QuotaExceeded, "waiters of a name", m.limits.WaitersPerName))
	}
	c := m.enter(s, a, seq, print, found[:len(spec.Names)], hashes[:])
	if open {
		m.grant(c)
		return command.Result{Claim: c.status()}
	}
	return m.enqueue(c)
}

// refuse remembers a refusal under the claim's number, if a duplicate could carry that number.
func (m *Machine) refuse(s *session, done outcome, r command.Result) command.Result {
	if s.numbered || done.nonce != "" {
		done.code, done.reason = r.Code, r.Limit
		if !s.numbered && keeps(&m.limits) { // nothing else bounds their number
			done.names = 1
			s.weight++
		}
		s.remember(done, &m.limits)
	}
	return r
}

// full refuses a claim of a session that already has as many as it may, including remembered ones.
// In a machine-numbered session the refusal is not remembered: the same call succeeds once the
// client has let go of some.
func (m *Machine) full(s *session, done outcome) command.Result {
	r := m.refused(command.QuotaExceeded, "claims of a session times their names", m.limits.ClaimsPerSession)
	if !keeps(&m.limits) {
		return m.refuse(s, done, r)
	}
	r.Limit += ", including remembered ones: end some, or raise floor and seen to let old ones be forgotten"
	return m.refuseFull(s, done, r)
}

// refuseFull refuses a call that may succeed once there is room again. A client that numbers its
// claims uses another number then.
func (m *Machine) refuseFull(s *session, done outcome, r command.Result) command.Result {
	if s.numbered {
		return m.refuse(s, done, r)
	}
	return r
}

func (m *Machine) refused(code command.Code, what string, limit uint32) command.Result {
	return command.Result{Code: code, Limit: fmt.Sprintf("%s: at most %d", what, limit)}
}

// enter makes a live claim with a place at each of its names, in no list yet.
func (m *Machine) enter(s *session, a *command.Acquire, seq, print uint64, names []*name, hashes []uint64) *claim {
	c := &claim{session: s, seq: seq, spec: a.Spec, print: print, nonce: a.Nonce, at: m.at, since: m.wall}
	c.links = c.one[:]
	if len(names) > 1 {
		c.links = make([]link, len(names))
	}
	for i, text := range a.Spec.Names {
		c.links[i] = link{name: m.use(names[i], text, hashes[i], &a.Spec), claim: c}
	}
	s.add(c)
	return c
}

func (m *Machine) enqueue(c *claim) command.Result {
	for i := range c.links {
		c.links[i].name.waiters.push(&c.links[i])
	}
	m.counts.Waiters++
	if c.spec.HasWait {
		m.timer(command.WaitStarted, c.id(), c.spec.Wait)
	}
	m.record(command.EventQueued, c, "", "")
	r := command.Result{Claim: c.status()}
	r.Claim.Blockers = c.blockers()
	return r
}
