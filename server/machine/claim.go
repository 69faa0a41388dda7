package machine

import (
	"slices"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A claim is live (queued or granted) or closing: over for its owner, but still counted among the
// holders of its names.
type claim struct {
	session  *session
	seq      uint64
	spec     command.Spec
	print    uint64 // of the spec, to tell a retry from another request
	nonce    string
	at       Position // of the Acquire: the order of all queues
	order    uint64   // of the grant among all grants: the order of holders
	since    command.WallMillis
	change   uint64
	token    command.Token
	granted  bool
	closing  bool
	delay    command.Millis  // of the closing
	delayEnd command.Millis  // of the closing, on the lease clock, if recorded
	labels   []command.Label // of the session and the claim, built when first shown

	older, newer *claim // neighbours in held

	links []link
	one   [1]link // backs links for a single name, so that most claims are one object
}

func (c *claim) id() command.ClaimID { return command.ClaimID{Session: c.session.id, Seq: c.seq} }

func (c *claim) state() command.State {
	if c.granted {
		return command.Granted
	}
	return command.Queued
}

// An outcome is what a session remembers of a claim that is over. An Acquire that was refused for
// good is remembered too: its duplicate must not be granted.
type outcome struct {
	seq    uint64
	state  command.State
	code   command.Code // of a refused Acquire
	names  uint8
	token  command.Token
	change uint64
	print  uint64 // 0 if the claim was cancelled before it was seen
	nonce  string
	by     string
	reason string // of a refusal: the limit
}

// byService reports whether the service ended the claim and must report that to the owner. An
// expiry ends the session as well.
func (o *outcome) byService() bool { return o.state == command.WaitEnded || o.state == command.Revoked }

// told reports whether the end has a change number of its own. The owner of a client-numbered
// session learns of every end: one connection may end what another believes in, and the log does
// not say who asked.
func (o *outcome) told(s *session, limits *command.Limits) bool {
	return o.byService() || s.numbered && keeps(limits)
}

func (o *outcome) status() command.ClaimStatus {
	return command.ClaimStatus{Seq: o.seq, State: o.state, Token: o.token, Change: o.change, By: o.by, Reason: o.reason}
}

func (o *outcome) result() command.Result {
	if o.code != command.OK {
		return command.Result{Code: o.code, Limit: o.reason}
	}
	return command.Result{Claim: o.status()}
}

// status returns the present state of a live claim.
func (c *claim) status() command.ClaimStatus {
	st := command.ClaimStatus{Seq: c.seq, State: c.state(), Token: c.token, Change: c.change}
	if !c.granted {
		for i := range c.links {
			k := &c.links[i]
			st.Position = max(st.Position, k.name.waiters.position(k))
		}
	}
	return st
}

// fingerprint distinguishes specs. It is never zero.
func fingerprint(s *command.Spec) uint64 {
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
func (c *claim) blockers() []command.Holder {
	var names [command.MaxNames]*name
	for i := range c.links {
		names[i] = c.links[i].name
	}
	return blockers(c, names[:len(c.links)])
}

// blockers lists the holders of the names. If none of them has a holder, the first waiter other
// than self blocks it: that one waits for a further name.
func blockers(self *claim, names []*name) []command.Holder {
	var list []command.Holder
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
func lists(list []command.Holder, c *claim) bool {
	return slices.ContainsFunc(list, func(h command.Holder) bool { return h.Claim == c.id() })
}

func (c *claim) holder() command.Holder {
	return command.Holder{
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
func (c *claim) metadata() []command.Label {
	if c.labels == nil {
		c.labels = mergeLabels(c.session.metadata, c.spec.Metadata)
	}
	return c.labels
}

// mergeLabels merges two sorted lists. Where both have a key, the value of over wins.
func mergeLabels(under, over []command.Label) []command.Label {
	switch {
	case len(under) == 0:
		return over
	case len(over) == 0:
		return under
	}
	merged := make([]command.Label, 0, len(under)+len(over))
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
