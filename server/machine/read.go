package machine

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-dev/lockstep/server/command"
)

// Lock returns the public state of a name, with at most this many holders and waiters. A name that
// nobody holds or waits for has the zero mode and empty lists.
func (m *Machine) Lock(text string, holders, waiters int) command.Lock {
	n := m.find(text, hashText(0, text))
	if n == nil {
		return command.Lock{Name: text, NextToken: m.nextToken}
	}
	return m.lock(n, holders, waiters)
}

func (m *Machine) lock(n *name, holders, waiters int) command.Lock {
	l := command.Lock{
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
	Claim command.ClaimID
	Token command.Token
}

// Grants returns the grants of a name whose token is last or lower, including closing ones, in the
// order in which they were made. Sizes gives an upper bound on their number.
func (m *Machine) Grants(text string, last command.Token) (grants []Grant) {
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

func shown(l *list, limit int) []command.Holder {
	limit = min(limit, l.n)
	if limit <= 0 {
		return nil
	}
	all := make([]command.Holder, 0, limit)
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
func (m *Machine) Locks(prefix, after string, limit int) (locks []command.Lock, more bool) {
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

// A Session is the part of a session's state that its leader needs.
type Session struct {
	ID             command.SessionID
	TTL            command.Millis
	ClientNumbered bool
	Change         uint64
	Weight         uint32 // number of names of its claims: what ending it costs
	Checkpointed   bool   // the end of its lease is recorded: renewing it takes [command.RenewLeases]

	secret command.Secret // see Owned
	hashed bool
}

// Session returns a live session.
func (m *Machine) Session(id command.SessionID) (Session, bool) {
	if s := m.session(id); s != nil {
		return s.public(&m.limits), true
	}
	return Session{}, false
}

// Leaving returns a session that has ended but has closing claims. Its owner may still confirm with
// Release, Cancel and CloseSession.
func (m *Machine) Leaving(id command.SessionID) (Session, bool) {
	if s := m.leaving(id); s != nil {
		return s.public(&m.limits), true
	}
	return Session{}, false
}

func (s *session) public(l *command.Limits) Session {
	return Session{
		ID: s.id, secret: s.secret, hashed: hashes(l), TTL: s.ttl, ClientNumbered: s.numbered, Change: s.change, Weight: s.weight,
		Checkpointed: s.leaseEnd != 0,
	}
}

// SessionEnd returns why a session that is not live ended: SessionExpired or SessionRevoked while
// that is remembered, else SessionUnknown, also when its owner closed it.
func (m *Machine) SessionEnd(id command.SessionID) command.Code {
	if e := m.shards[shardOf(id)].ended.m[id]; e.code != command.OK {
		return e.code
	}
	return command.SessionUnknown
}

// SessionEnding is like SessionEnd, and also returns who revoked the session and why.
func (m *Machine) SessionEnding(id command.SessionID) (code command.Code, by, reason string) {
	e := m.shards[shardOf(id)].ended.m[id]
	return m.SessionEnd(id), e.by, e.reason
}

// Claim returns the present state of a claim of a live session, including ended claims while they
// are remembered.
func (m *Machine) Claim(id command.ClaimID) (command.ClaimStatus, bool) {
	s := m.session(id.Session)
	if s == nil {
		return command.ClaimStatus{}, false
	}
	if c := s.find(id.Seq); c != nil {
		return c.status(), true
	}
	if o := s.outcome(id.Seq); o != nil && o.code == command.OK {
		return o.status(), true
	}
	return command.ClaimStatus{}, false
}

// ChangedSince returns the claims of a live session that changed after the change number seen, in
// the order of the changes.
func (m *Machine) ChangedSince(id command.SessionID, seen uint64) []command.ClaimStatus {
	s := m.session(id)
	if s == nil || s.change <= seen {
		return nil
	}
	var list []command.ClaimStatus
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
	slices.SortFunc(list, func(a, b command.ClaimStatus) int { return cmp.Compare(a.Change, b.Change) })
	return list
}

// Timers returns all running timers, for a new leader: sessions, waits and delays, each with its
// full span unless a checkpoint says how much is left of it.
func (m *Machine) Timers() []command.Timer {
	timers := make([]command.Timer, 0, m.counts.Sessions)
	for i := range m.shards {
		for _, s := range sortedSessions(&m.shards[i].live) {
			left, checkpointed := m.left(s.ttl, s.leaseEnd)
			timers = append(timers, command.Timer{Kind: command.SessionStarted, Claim: command.ClaimID{Session: s.id}, Span: left, Checkpointed: checkpointed})
			for _, c := range s.claims {
				if !c.granted && c.spec.HasWait {
					timers = append(timers, command.Timer{Kind: command.WaitStarted, Claim: c.id(), Span: c.spec.Wait})
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

func (m *Machine) appendDelays(timers []command.Timer, s *session) []command.Timer {
	for _, c := range s.closing {
		left, checkpointed := m.left(c.delay, c.delayEnd)
		timers = append(timers, command.Timer{Kind: command.DelayStarted, Claim: c.id(), Span: left, Checkpointed: checkpointed})
	}
	return timers
}

func sortedSessions(t *table[command.SessionID, *session]) []*session {
	if len(t.m) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(t.m), func(a, b *session) int { return compareIDs(a.id, b.id) })
}

func compareIDs(a, b command.SessionID) int { return bytes.Compare(a[:], b[:]) }

// Counts are sizes for status and metrics.
type Counts struct {
	Sessions, Names, Holders, Waiters, Closing int
	NextToken                                  command.Token
	Oldest                                     command.WallMillis // grant time of the oldest holder, or 0
	Events                                     uint64             // number of the last event
	Bytes                                      int                // of the state; see Limits.StateBytes
	Checkpointed                               int                // leases and delays whose end is recorded
	Endings                                    uint64             // sessions that have ended
}

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
