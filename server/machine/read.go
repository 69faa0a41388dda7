package machine

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Lock returns the public state of a name, with at most this many holders and waiters. A name that
// nobody holds or waits for has the zero mode and empty lists.
func (m *Machine) Lock(text string, holders, waiters int) Lock {
	n := m.find(text, hashText(0, text))
	if n == nil {
		return Lock{Name: text, NextToken: m.nextToken}
	}
	return m.lock(n, holders, waiters)
}

func (m *Machine) lock(n *name, holders, waiters int) Lock {
	l := Lock{
		Name: n.text, Capacity: n.capacity, Used: n.used, Holding: n.holders.n, Waiting: n.waiters.n, NextToken: m.nextToken,
		Holders: shown(&n.holders, holders), Waiters: shown(&n.waiters.list, waiters),
	}
	if n.holders.n > 0 {
		l.Mode = n.holders.head.claim.spec.Mode
	} else {
		l.Mode = n.waiters.head.claim.spec.Mode
	}
	return l
}

// Sizes returns the number of holders and waiters of a name.
func (m *Machine) Sizes(text string) (holders, waiters int) {
	if n := m.find(text, hashText(0, text)); n != nil {
		return n.holders.n, n.waiters.n
	}
	return 0, 0
}

// A Grant identifies what a Revoke ends.
type Grant struct {
	Claim ClaimID
	Token Token
}

// Grants returns the grants of a name whose token is last or lower, including closing ones, in the
// order in which they were made. Sizes gives an upper bound on their number.
func (m *Machine) Grants(text string, last Token) (grants []Grant) {
	n := m.find(text, hashText(0, text))
	if n == nil {
		return nil
	}
	for k := n.holders.head; k != nil; k = k.next {
		if k.claim.token <= last {
			grants = append(grants, Grant{k.claim.id(), k.claim.token})
		}
	}
	return grants
}

func shown(l *list, limit int) []Holder {
	limit = min(limit, l.n)
	if limit <= 0 {
		return nil
	}
	all := make([]Holder, 0, limit)
	for k := l.head; k != nil && len(all) < limit; k = k.next {
		all = append(all, k.claim.holder())
	}
	return all
}

// ListedHolders and listedWaiters are how many holders and waiters of each name Locks shows.
const (
	ListedHolders = 16
	listedWaiters = 1
)

// MaxListed bounds the holders and waiters on one page of Locks: copying them takes about a
// millisecond.
const MaxListed = 4_096

// Locks returns the names with this prefix that sort after `after`, in byte order, with at most
// [ListedHolders] holders and one waiter each. It returns at most limit names, and fewer where
// limit would mean more than [MaxListed] claims. More reports whether further names follow.
func (m *Machine) Locks(prefix, after string, limit int) (locks []Lock, more bool) {
	claims := 0
	m.order.AscendGreaterOrEqual(&name{text: max(prefix, after)}, func(n *name) bool {
		if n.text == after {
			return true
		}
		if !strings.HasPrefix(n.text, prefix) {
			return false
		}
		claims += min(n.holders.n, ListedHolders) + min(n.waiters.n, listedWaiters)
		if len(locks) >= limit || claims > MaxListed {
			more = true
			return false
		}
		locks = append(locks, m.lock(n, ListedHolders, listedWaiters))
		return true
	})
	return locks, more
}

// Session returns a live session.
func (m *Machine) Session(id SessionID) (Session, bool) {
	if s := m.session(id); s != nil {
		return s.public(&m.limits), true
	}
	return Session{}, false
}

// Leaving returns a session that has ended but has closing claims. Its owner may still confirm with
// Release, Cancel and CloseSession.
func (m *Machine) Leaving(id SessionID) (Session, bool) {
	if s := m.leaving(id); s != nil {
		return s.public(&m.limits), true
	}
	return Session{}, false
}

func (s *session) public(l *Limits) Session {
	return Session{
		ID: s.id, secret: s.secret, hashed: l.hashes(), TTL: s.ttl, ClientNumbered: s.numbered, Change: s.change, Weight: s.weight,
		Checkpointed: s.leaseEnd != 0,
	}
}

// SessionEnd returns why a session that is not live ended: SessionExpired or SessionRevoked while
// that is remembered, else SessionUnknown, also when its owner closed it.
func (m *Machine) SessionEnd(id SessionID) Code {
	if e := m.shards[shardOf(id)].ended.m[id]; e.code != OK {
		return e.code
	}
	return SessionUnknown
}

// SessionEnding is like SessionEnd, and also returns who revoked the session and why.
func (m *Machine) SessionEnding(id SessionID) (code Code, by, reason string) {
	e := m.shards[shardOf(id)].ended.m[id]
	return m.SessionEnd(id), e.by, e.reason
}

// Claim returns the present state of a claim of a live session, including ended claims while they
// are remembered.
func (m *Machine) Claim(id ClaimID) (ClaimStatus, bool) {
	s := m.session(id.Session)
	if s == nil {
		return ClaimStatus{}, false
	}
	if c := s.find(id.Seq); c != nil {
		return c.status(), true
	}
	if o := s.outcome(id.Seq); o != nil && o.code == OK {
		return o.status(), true
	}
	return ClaimStatus{}, false
}

// ChangedSince returns the claims of a live session that changed after the change number seen, in
// the order of the changes.
func (m *Machine) ChangedSince(id SessionID, seen uint64) []ClaimStatus {
	s := m.session(id)
	if s == nil || s.change <= seen {
		return nil
	}
	var list []ClaimStatus
	for _, c := range s.claims {
		if c.change > seen {
			list = append(list, c.status())
		}
	}
	for i := range s.outcomes {
		if o := &s.outcomes[i]; o.change > seen {
			list = append(list, o.status())
		}
	}
	slices.SortFunc(list, func(a, b ClaimStatus) int { return cmp.Compare(a.Change, b.Change) })
	return list
}

// Timers returns all running timers, for a new leader: sessions, waits and delays, each with its
// full span unless a checkpoint says how much is left of it.
func (m *Machine) Timers() []Timer {
	timers := make([]Timer, 0, m.counts.Sessions)
	for i := range m.shards {
		for _, s := range sortedSessions(&m.shards[i].live) {
			left, checkpointed := m.left(s.ttl, s.leaseEnd)
			timers = append(timers, Timer{SessionStarted, ClaimID{Session: s.id}, left, checkpointed})
			for _, c := range s.claims {
				if !c.granted && c.spec.HasWait {
					timers = append(timers, Timer{Kind: WaitStarted, Claim: c.id(), Span: c.spec.Wait})
				}
			}
			timers = m.appendDelays(timers, s)
		}
		for _, s := range sortedSessions(&m.shards[i].leaving) {
			timers = m.appendDelays(timers, s)
		}
	}
	return timers
}

func (m *Machine) appendDelays(timers []Timer, s *session) []Timer {
	for _, c := range s.closing {
		left, checkpointed := m.left(c.delay, c.delayEnd)
		timers = append(timers, Timer{DelayStarted, c.id(), left, checkpointed})
	}
	return timers
}

func sortedSessions(t *table[SessionID, *session]) []*session {
	if len(t.m) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(t.m), func(a, b *session) int { return compareIDs(a.id, b.id) })
}

func compareIDs(a, b SessionID) int { return bytes.Compare(a[:], b[:]) }

// Counts returns the sizes of the state.
func (m *Machine) Counts() Counts {
	c := m.counts
	c.NextToken = m.nextToken
	c.Events, c.Endings = m.events, m.endings
	if m.held.first != nil {
		c.Oldest = m.held.first.since
	}
	return c
}
