package machine

import (
	"fmt"
	"slices"
)

// MaxNames bounds the names of one claim.
const MaxNames = 16

// A claim is live: queued or granted; or closing: it is over for its owner, but still
// counts among the holders of its names.
type claim struct {
	session *session
	seq     uint64
	spec    Spec
	print   uint64 // of the spec, to tell a retry from another request
	nonce   string
	at      Position // of the Acquire: the order of all queues
	order   uint64   // of the grant among all grants: the order of holders
	since   WallMillis
	change  uint64
	token   Token
	granted bool
	closing bool
	delay   Millis  // of the closing
	labels  []Label // of the session and the claim, made when first shown

	links []link
	one   [1]link // what links uses for one name, so that most claims are one object
}

func (c *claim) id() ClaimID { return ClaimID{c.session.id, c.seq} }

func (c *claim) state() State {
	if c.granted {
		return Granted
	}
	return Queued
}

// An outcome is what a session remembers of a claim that is over. An Acquire that was
// refused for good is remembered too: its duplicate must not be granted.
type outcome struct {
	seq    uint64
	state  State
	code   Code // of a refused Acquire
	names  uint8
	token  Token
	change uint64
	print  uint64 // 0 when the claim was cancelled before it was seen
	nonce  string
	by     string
	reason string // of a refusal: the limit
}

// byService reports whether the owner has to be told of the end. An expiry ends the
// session with it.
func (o *outcome) byService() bool { return o.state == WaitEnded || o.state == Revoked }

func (o *outcome) status() ClaimStatus {
	return ClaimStatus{Seq: o.seq, State: o.state, Token: o.token, Change: o.change, By: o.by, Reason: o.reason}
}

func (o *outcome) result() Result {
	if o.code != OK {
		return Result{Code: o.code, Limit: o.reason}
	}
	return Result{Claim: o.status()}
}

// status is the present state of a live claim.
func (c *claim) status() ClaimStatus {
	st := ClaimStatus{Seq: c.seq, State: c.state(), Token: c.token, Change: c.change}
	if !c.granted {
		for i := range c.links {
			k := &c.links[i]
			st.Position = max(st.Position, k.name.waiters.position(k))
		}
	}
	return st
}

// fingerprint tells specs apart. It is never zero.
func fingerprint(s *Spec) uint64 {
	h := hashWord(0, uint64(len(s.Names)))
	for _, n := range s.Names {
		h = hashText(h, n)
	}
	h = hashWord(h, uint64(s.Mode)|uint64(s.Weight)<<8)
	h = hashWord(h, uint64(s.Capacity))
	if s.HasWait {
		h = hashWord(h, uint64(s.Wait)+1)
	}
	h = hashWord(h, uint64(s.LockDelay))
	for _, l := range s.Metadata {
		h = hashText(hashText(h, l.Key), l.Value)
	}
	return max(h, 1)
}

// maxPermits bounds the capacity of a semaphore, as the contract does.
const maxPermits = 1 << 20

// wellFormed checks what callers check before they propose. An entry that breaks these
// rules was proposed by a broken node; refusing it is better than stopping the cluster.
func (s *Spec) wellFormed() bool {
	if len(s.Names) < 1 || len(s.Names) > MaxNames {
		return false
	}
	for i, n := range s.Names {
		if n == "" || slices.Contains(s.Names[:i], n) {
			return false
		}
	}
	switch s.Mode {
	case Exclusive:
		return s.Weight == 0 && s.Capacity == 0
	case Shared:
		return s.Weight == 0 && s.Capacity == 0 && len(s.Names) == 1
	case Permits:
		return s.Weight >= 1 && s.Weight <= s.Capacity && s.Capacity <= maxPermits && len(s.Names) == 1
	default:
		return false
	}
}

// wellFormed reports whether the claim is numbered by the one who numbers the session's.
func (a *Acquire) wellFormed(s *session) bool {
	return a.Spec.wellFormed() && s.numbered == (a.Seq != 0)
}

func (m *Machine) acquire(a *Acquire) Result {
	s := m.session(a.Session)
	if s == nil {
		return Result{Code: m.SessionEnd(a.Session)}
	}
	if !a.wellFormed(s) {
		return Result{Code: Malformed}
	}
	m.changing(s.id)
	s.hear(a.Floor, a.Seen)
	seq := a.Seq
	if !s.numbered {
		seq = s.nonces[a.Nonce] // zero for a new one, and for none
	}
	print := fingerprint(&a.Spec)
	if r, known := m.repeated(s, seq, print); known && !mutantDedupe {
		return r
	}
	if s.numbered {
		if r := m.outside(s, seq, s.floor); r.Code != OK {
			return r
		}
	} else {
		s.last++
		seq = s.last
	}
	return m.place(s, a, seq, print)
}

// repeated answers the Acquire of a claim that is known already.
func (m *Machine) repeated(s *session, seq, print uint64) (Result, bool) {
	if seq == 0 {
		return Result{}, false
	}
	if c := s.find(seq); c != nil {
		if c.print != print {
			return Result{Code: RequestReused}, true
		}
		r := Result{Claim: c.status()}
		if !c.granted {
			r.Claim.Blockers = c.blockers()
		}
		return r, true
	}
	if o := s.outcome(seq); o != nil {
		if o.print != 0 && o.print != print {
			return Result{Code: RequestReused}, true
		}
		return o.result(), true
	}
	return Result{}, false
}

// place decides about a claim that is new: granted, queued, busy or refused.
func (m *Machine) place(s *session, a *Acquire, seq, print uint64) Result {
	if !m.ready() {
		return Result{Code: NotReady}
	}
	spec := &a.Spec
	done := outcome{seq: seq, print: print, nonce: a.Nonce}
	if limit := m.limits.ClaimsPerSession; s.weight+uint32(len(spec.Names)) > limit {
		return m.refuse(s, done, m.refused(QuotaExceeded, "claims of a session times their names", limit))
	}
	var found [MaxNames]*name
	var hashes [MaxNames]uint64
	open, short := true, true // it can be granted now; its queues are not full
	for i, text := range spec.Names {
		hashes[i] = hashText(0, text)
		n := m.find(text, hashes[i])
		found[i] = n
		if n == nil {
			continue
		}
		if !n.matches(spec) {
			return m.refuse(s, done, Result{Code: ModeMismatch})
		}
		open = open && n.waiters.n == 0 && n.takes(spec)
		short = short && n.waiters.n < int(m.limits.WaitersPerName)
	}
	if !open && spec.Try() {
		done.state, done.names = Busy, uint8(len(spec.Names))
		s.weight += uint32(len(spec.Names))
		s.remember(done, &m.limits)
		r := Result{Claim: done.status()}
		r.Claim.Blockers = blockers(nil, found[:len(spec.Names)])
		return r
	}
	if !open && !short {
		return m.refuse(s, done, m.refused(QuotaExceeded, "waiters of a name", m.limits.WaitersPerName))
	}
	c := m.enter(s, a, seq, print, found[:len(spec.Names)], hashes[:])
	if open {
		m.grant(c)
		return Result{Claim: c.status()}
	}
	return m.enqueue(c)
}

// refuse remembers a refusal under the claim's number, if it has one that a duplicate
// could carry.
func (m *Machine) refuse(s *session, done outcome, r Result) Result {
	if s.numbered || done.nonce != "" {
		done.code, done.reason = r.Code, r.Limit
		s.remember(done, &m.limits)
	}
	return r
}

func (m *Machine) refused(code Code, what string, limit uint32) Result {
	return Result{Code: code, Limit: fmt.Sprintf("%s: at most %d", what, limit)}
}

// enter makes a live claim with a place at each of its names, in no list yet.
func (m *Machine) enter(s *session, a *Acquire, seq, print uint64, names []*name, hashes []uint64) *claim {
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

func (m *Machine) enqueue(c *claim) Result {
	for i := range c.links {
		c.links[i].name.waiters.push(&c.links[i])
	}
	m.counts.Waiters++
	if c.spec.HasWait {
		m.timer(WaitStarted, c.id(), c.spec.Wait)
	}
	m.record(EventQueued, c, "", "")
	r := Result{Claim: c.status()}
	r.Claim.Blockers = c.blockers()
	return r
}

// grant gives all names to a claim that is in no list.
func (m *Machine) grant(c *claim) {
	c.token = 0
	if c.spec.Mode == Shared {
		c.token = c.links[0].name.sharedToken()
	}
	if c.token == 0 {
		c.token = m.nextToken
		if !mutantToken {
			m.nextToken++
		}
	}
	m.grants++
	c.order = m.grants
	c.granted = true
	c.since = m.wall
	for i := range c.links {
		c.links[i].name.hold(&c.links[i])
	}
	m.counts.Holders++
	m.record(EventGranted, c, "", "")
}

// grantWaiter takes the claim out of its queues, whose next heads are tried too.
func (m *Machine) grantWaiter(c *claim) {
	m.changing(c.session.id)
	m.unqueue(c)
	m.grant(c)
	m.changed(c)
}

// unqueue takes a claim out of all its queues. A running wait is over.
func (m *Machine) unqueue(c *claim) {
	for i := range c.links {
		k := &c.links[i]
		k.name.waiters.remove(k)
		m.try(k.name)
	}
	m.counts.Waiters--
	if c.spec.HasWait {
		m.timer(WaitOver, c.id(), 0)
	}
}

// free takes a claim away from the holders of all its names.
func (m *Machine) free(c *claim) {
	for i := range c.links {
		k := &c.links[i]
		k.name.free(k)
		m.try(k.name)
	}
	m.counts.Holders--
}

// changed tells the owner of a live claim about what it did not cause.
func (m *Machine) changed(c *claim) {
	s := c.session
	s.change++
	c.change = s.change
	m.out.Changes = append(m.out.Changes, Change{Session: s.id, Number: s.change, Claim: c.status()})
}

// maxBlockers bounds the answer to "who is in the way".
const maxBlockers = 16

// blockers lists who is in the way of a waiting claim.
func (c *claim) blockers() []Holder {
	var names [MaxNames]*name
	for i := range c.links {
		names[i] = c.links[i].name
	}
	return blockers(c, names[:len(c.links)])
}

// blockers lists the holders of the names. Where nobody holds any, the first waiter
// but the claim itself is in the way: it waits for a further name.
func blockers(self *claim, names []*name) []Holder {
	var list []Holder
	for _, n := range names {
		if n == nil {
			continue
		}
		for k := n.holders.head; k != nil && len(list) < maxBlockers; k = k.next {
			if len(names) == 1 || !lists(list, k.claim) {
				list = append(list, k.claim.holder())
			}
		}
	}
	for _, n := range names {
		if n == nil || len(list) > 0 || n.waiters.n == 0 {
			continue
		}
		if first := n.waiters.head.claim; first != self {
			list = append(list, first.holder())
		}
	}
	return list
}

// lists reports whether the claim is in the list already, as a holder of another name.
func lists(list []Holder, c *claim) bool {
	return slices.ContainsFunc(list, func(h Holder) bool { return h.Claim == c.id() })
}

func (c *claim) holder() Holder {
	return Holder{
		Claim:    c.id(),
		Token:    c.token,
		Since:    c.since,
		Mode:     c.spec.Mode,
		Weight:   c.spec.Weight,
		Metadata: c.metadata(),
		Closing:  c.closing,
		Names:    c.spec.Names,
	}
}

// metadata is what others see: the labels of the session and of the claim.
func (c *claim) metadata() []Label {
	if c.labels == nil {
		c.labels = mergeLabels(c.session.metadata, c.spec.Metadata)
	}
	return c.labels
}

// mergeLabels joins two sorted lists. Where both have a key, the value of over wins.
func mergeLabels(under, over []Label) []Label {
	switch {
	case len(under) == 0:
		return over
	case len(over) == 0:
		return under
	}
	merged := make([]Label, 0, len(under)+len(over))
	for len(under) > 0 && len(over) > 0 {
		switch {
		case under[0].Key < over[0].Key:
			merged, under = append(merged, under[0]), under[1:]
		case under[0].Key > over[0].Key:
			merged, over = append(merged, over[0]), over[1:]
		default:
			under = under[1:]
		}
	}
	return append(append(merged, under...), over...)
}
