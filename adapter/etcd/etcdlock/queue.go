package etcdlock

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockstep-dev/lockstep"
)

// A queue is what etcd stores for one lock at one revision: all claims in the order of their create
// revisions.
type queue []entry

// order sorts claims into a queue.
func order(entries []entry) queue {
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.created, b.created) })
	return entries
}

// holders returns how many of the first claims hold the lock: the first one and, if it is shared,
// all shared ones up to the first exclusive one.
func (q queue) holders() int {
	if len(q) == 0 || !q[0].shared {
		return min(len(q), 1)
	}
	if i := slices.IndexFunc(q, func(e entry) bool { return !e.shared }); i >= 0 {
		return i
	}
	return len(q)
}

// state is the public state of the lock.
func (q queue) state(name string, revision int64) lockstep.State {
	s := lockstep.State{Name: name, NextToken: lockstep.Token(revision + 1)}
	n := q.holders()
	for _, e := range q[:n] {
		s.Holders = append(s.Holders, e.claim(max(e.token(), 1)))
	}
	q.unite(s.Holders)
	for _, e := range q[n:] {
		s.Waiters = append(s.Waiters, e.claim(0))
	}
	return s
}

// unite gives the common token to shared holders that are about to write it.
func (q queue) unite(holders []lockstep.Claim) {
	for i := range holders {
		if q[i].record.Token == 0 {
			holders[i].Token = holders[0].Token
		}
	}
}

// busy is the error for a claim blocked by these claims. There are count of them, of which q may
// hold only the first.
func (q queue) busy(count int) *lockstep.BusyError {
	s := q.state("", 0)
	return &lockstep.BusyError{Holders: s.Holders, Position: count - len(s.Holders) + 1}
}

func (e entry) claim(token lockstep.Token) lockstep.Claim {
	mode := lockstep.Exclusive
	if e.shared {
		mode = lockstep.Shared
	}
	return lockstep.Claim{
		Owner: leaseText(e.lease), Token: token, Mode: mode,
		Since: e.record.Since, Metadata: maps.Clone(e.record.Metadata),
	}
}
