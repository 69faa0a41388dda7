package machine

import (
	"cmp"
	"slices"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A session owns claims. It is live, or it has ended and only its closing claims remain.
type session struct {
	id       command.SessionID
	secret   command.Secret // its hash from SecretLevel on
	ttl      command.Millis
	numbered bool         // by its client
	ended    command.Code // OK while it lives
	change   uint64
	floor    uint64         // the lowest seq whose answer, or nonce, the client still needs
	seen     uint64         // the last change covered by a logged command
	last     uint64         // machine-numbered: the last seq assigned
	leaseEnd command.Millis // on the lease clock, if recorded
	weight   uint32         // number of names over its claims, live and remembered
	bytes    int            // of the session and everything it owns; see weigh
	counts   *Counts        // of the machine
	metadata []command.Label

	claims   []*claim  // live ones, by seq
	closing  []*claim  // by seq
	outcomes []outcome // client-numbered: by seq; machine-numbered: in order of ending
	nonces   map[string]uint64
}

func bySeq(c *claim, seq uint64) int { return cmp.Compare(c.seq, seq) }

func outcomeBySeq(o outcome, seq uint64) int { return cmp.Compare(o.seq, seq) }

// find returns the live claim with this number, or nil.
func (s *session) find(seq uint64) *claim { return findClaim(s.claims, seq) }

// findClosing returns the closing claim with this number, or nil.
func (s *session) findClosing(seq uint64) *claim { return findClaim(s.closing, seq) }

func findClaim(list []*claim, seq uint64) *claim {
	if i, ok := slices.BinarySearchFunc(list, seq, bySeq); ok {
		return list[i]
	}
	return nil
}

func insertClaim(list []*claim, c *claim) []*claim {
	if n := len(list); n == 0 || list[n-1].seq < c.seq {
		return append(list, c)
	}
	i, _ := slices.BinarySearchFunc(list, c.seq, bySeq)
	return slices.Insert(list, i, c)
}

func removeClaim(list []*claim, c *claim) []*claim {
	i, _ := slices.BinarySearchFunc(list, c.seq, bySeq)
	return shrunk(slices.Delete(list, i, i+1))
}

// roomySize is the capacity up to which a list keeps its memory.
const roomySize = 64

// shrunk releases the memory of a list that used to be much longer.
func shrunk[T any](list []T) []T {
	if cap(list) > roomySize && len(list) < cap(list)/4 {
		return slices.Clone(list)
	}
	return list
}

// outcome returns what is remembered of a claim that is over, or nil.
func (s *session) outcome(seq uint64) *outcome {
	i, ok := s.outcomeAt(seq)
	if !ok {
		return nil
	}
	return &s.outcomes[i]
}

func (s *session) outcomeAt(seq uint64) (int, bool) {
	if s.numbered {
		return slices.BinarySearchFunc(s.outcomes, seq, outcomeBySeq)
	}
	i := slices.IndexFunc(s.outcomes, func(o outcome) bool { return o.seq == seq })
	return i, i >= 0
}

// add adds a new live claim.
func (s *session) add(c *claim) {
	s.claims = insertClaim(s.claims, c)
	s.weight += uint32(len(c.links))
	s.weigh(c.size())
	s.rememberNonce(c.nonce, c.seq)
}

func (s *session) rememberNonce(nonce string, seq uint64) {
	if nonce == "" || s.numbered {
		return
	}
	if s.nonces == nil {
		s.nonces = make(map[string]uint64)
	}
	s.nonces[nonce] = seq
}

// remember keeps the outcome of a claim that is over. Its names are already counted in s.weight,
// and stay counted until the outcome is forgotten.
func (s *session) remember(o outcome, limits *command.Limits) {
	s.rememberNonce(o.nonce, o.seq)
	s.weigh(o.size())
	if !s.numbered {
		s.outcomes = append(s.outcomes, o)
		s.trim(limits)
		return
	}
	i, _ := s.outcomeAt(o.seq)
	s.outcomes = slices.Insert(s.outcomes, i, o)
	if o.seq < s.floor {
		s.prune(limits)
	}
}

// trim forgets the oldest outcomes of a machine-numbered session that its client does not need,
// keeping at most as many of them as the limits allow.
func (s *session) trim(limits *command.Limits) {
	if len(s.outcomes) <= int(limits.RememberedClaims) {
		return
	}
	spare := 0
	for i := len(s.outcomes) - 1; i >= 0; i-- {
		if s.needs(&s.outcomes[i], limits) {
			continue
		}
		if spare++; spare > int(limits.RememberedClaims) {
			s.forget(i, i+1)
		}
	}
}

// needs reports whether the client of a machine-numbered session may still need an outcome: of a
// revocation that it has not seen, or of a claim whose nonce it may send again. The session's
// weight bounds how many there are.
func (s *session) needs(o *outcome, limits *command.Limits) bool {
	if !keeps(limits) {
		return false
	}
	return !mutantForget && o.state == command.Revoked && o.change > s.seen || o.nonce != "" && o.seq >= s.floor
}

// forget drops the outcomes in [i, j).
func (s *session) forget(i, j int) {
	for k := i; k < j; k++ {
		o := &s.outcomes[k]
		s.weight -= uint32(o.names)
		s.weigh(-o.size())
		if o.nonce != "" {
			delete(s.nonces, o.nonce)
		}
	}
	s.outcomes = shrunk(slices.Delete(s.outcomes, i, j))
}

// hear records what the client knows. Neither number falls.
func (s *session) hear(floor, seen uint64, limits *command.Limits) {
	seen = min(seen, s.change) // the client cannot know a future change
	if !s.numbered {
		floor = min(floor, s.last+1) // nor let go of a future number
	}
	if floor <= s.floor && seen <= s.seen || !s.numbered && !keeps(limits) {
		return
	}
	s.floor, s.seen = max(s.floor, floor), max(s.seen, seen)
	if s.numbered {
		s.prune(limits)
	} else {
		s.trim(limits)
	}
}

// prune forgets the outcomes that the client will not ask for again. The floor alone does not tell:
// a client that lets go of a number may still believe in the grant until it has reached the change
// that ended it.
func (s *session) prune(limits *command.Limits) {
	below, _ := slices.BinarySearchFunc(s.outcomes, s.floor, outcomeBySeq)
	for i := below - 1; i >= 0; i-- {
		j := i + 1
		for i >= 0 && s.forgettable(&s.outcomes[i], limits) {
			i--
		}
		s.forget(i+1, j)
	}
}

func (s *session) forgettable(o *outcome, limits *command.Limits) bool {
	return mutantForget || !o.told(s, limits) || o.change <= s.seen
}

// outside refuses an unknown number that was forgotten or is too far ahead of the floor.
func (m *Machine) outside(s *session, seq, floor uint64) command.Result {
	switch window := m.limits.RequestWindow; {
	case seq < floor:
		return command.Result{Code: command.StaleRequest}
	case seq-floor >= uint64(window):
		return m.refused(command.OutOfRange, "requests ahead of the floor", window)
	default:
		return command.Result{}
	}
}

// settled turns a live claim into an outcome to remember, and returns its status. The claim is no
// longer in any list of its names, or is about to become a closing one.
func (m *Machine) settled(c *claim, state command.State, by, reason string) command.ClaimStatus {
	s := c.session
	o := outcome{
		seq: c.seq, state: state, names: uint8(len(c.links)), token: c.token,
		change: c.change, print: c.print, nonce: c.nonce, by: by, reason: reason,
	}
	if o.told(s, &m.limits) {
		s.change++
		o.change = s.change
		m.out.Changes = append(m.out.Changes, command.Change{
			Session: s.id, Number: s.change, Claim: o.status(), By: by, Reason: reason,
		})
	}
	s.claims = removeClaim(s.claims, c)
	if !c.closing { // a closing claim is counted until it is closed
		s.weigh(-c.size())
	}
	s.remember(o, &m.limits)
	return o.status()
}

// session returns the live session, or nil.
func (m *Machine) session(id command.SessionID) *session {
	return m.shards[shardOf(id)].live.m[id]
}

// leaving returns the session that has ended but still has closing claims, or nil.
func (m *Machine) leaving(id command.SessionID) *session {
	return m.shards[shardOf(id)].leaving.m[id]
}

func (m *Machine) openSession(c *command.OpenSession) command.Result {
	if r := m.checkOpen(c); r.Code != command.OK {
		return r
	}
	s := &session{counts: &m.counts, id: m.sessionID(c), secret: m.keptSecret(c), ttl: c.TTL, numbered: c.ClientNumbered, metadata: c.Metadata}
	m.changing(s.id)
	s.weigh(s.size())
	m.shards[shardOf(s.id)].live.put(s.id, s)
	m.byID.ReplaceOrInsert(s)
	m.counts.Sessions++
	m.timer(command.SessionStarted, command.ClaimID{Session: s.id}, s.ttl)
	return command.Result{Session: s.id}
}

// sessionID makes an id that is unique through the command's position in the log and unguessable
// through its random part.
func (m *Machine) sessionID(c *command.OpenSession) command.SessionID {
	var id command.SessionID
	place := m.at.Index<<16 | uint64(m.at.N)
	for i := range 8 {
		id[i] = byte(place >> (56 - 8*i))
	}
	copy(id[8:], c.Random[:])
	return id
}
