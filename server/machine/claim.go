package machine

import "slices"

// MaxNames bounds the number of names of one claim.
const MaxNames = 16

// A claim is live (queued or granted) or closing: over for its owner, but still counted among the
// holders of its names.
type claim struct {
	session  *session
	seq      uint64
	spec     Spec
	print    uint64 // of the spec, to tell a retry from another request
	nonce    string
	at       Position // of the Acquire: the order of all queues
	order    uint64   // of the grant among all grants: the order of holders
	since    WallMillis
	change   uint64
	token    Token
	granted  bool
	closing  bool
	delay    Millis  // of the closing
	delayEnd Millis  // of the closing, on the lease clock, if recorded
	labels   []Label // of the session and the claim, built when first shown

	older, newer *claim // neighbours in held

	links []link
	one   [1]link // backs links for a single name, so that most claims are one object
}

func (c *claim) id() ClaimID { return ClaimID{c.session.id, c.seq} }

func (c *claim) state() State {
	if c.granted {
		return Granted
	}
	return Queued
}

// An outcome is what a session remembers of a claim that is over. An Acquire that was refused for
// good is remembered too: its duplicate must not be granted.
type outcome struct {
	seq    uint64
	state  State
	code   Code // of a refused Acquire
	names  uint8
	token  Token
	change uint64
	print  uint64 // 0 if the claim was cancelled before it was seen
	nonce  string
	by     string
	reason string // of a refusal: the limit
}

// byService reports whether the service ended the claim and must report that to the owner. An
// expiry ends the session as well.
func (o *outcome) byService() bool { return o.state == WaitEnded || o.state == Revoked }

// told reports whether the end has a change number of its own. The owner of a client-numbered
// session learns of every end: one connection may end what another believes in, and the log does
// not say who asked.
func (o *outcome) told(s *session, limits *Limits) bool {
	return o.byService() || s.numbered && limits.keeps()
}

func (o *outcome) status() ClaimStatus {
	return ClaimStatus{Seq: o.seq, State: o.state, Token: o.token, Change: o.change, By: o.by, Reason: o.reason}
}

func (o *outcome) result() Result {
	if o.code != OK {
		return Result{Code: o.code, Limit: o.reason}
	}
	return Result{Claim: o.status()}
}

// status returns the present state of a live claim.
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

// fingerprint distinguishes specs. It is never zero.
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

// maxBlockers bounds the list of blockers in an answer.
const maxBlockers = 16

// blockers lists the claims that block a waiting claim.
func (c *claim) blockers() []Holder {
	var names [MaxNames]*name
	for i := range c.links {
		names[i] = c.links[i].name
	}
	return blockers(c, names[:len(c.links)])
}

// blockers lists the holders of the names. If none of them has a holder, the first waiter other
// than self blocks it: that one waits for a further name.
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

// lists reports whether the claim is already in the list, as a holder of another name.
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

// metadata returns the labels that others see: those of the session and of the claim.
func (c *claim) metadata() []Label {
	if c.labels == nil {
		c.labels = mergeLabels(c.session.metadata, c.spec.Metadata)
	}
	return c.labels
}

// mergeLabels merges two sorted lists. Where both have a key, the value of over wins.
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
