package machine

import (
	"fmt"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

// TestClaimsRemovedInEveryOrder takes every queue of five readers and writers apart in every order,
// by Cancel, Expire or EndWait in turn. Removing a claim from the middle must grant nothing out of
// turn, and must not lose a wake-up. (etcd-io/etcd#16221)
func TestClaimsRemovedInEveryOrder(t *testing.T) {
	const claims = 5
	for _, order := range permutations(claims) {
		m, _ := opened(0)
		book := newBook()
		for pattern := range 1 << claims {
			var ids []command.SessionID
			for range claims {
				id := apply(m, command.OpenSession{TTL: 1, ClientNumbered: true}).Results[0].Session
				ids, book.open[id] = append(ids, id), true
			}
			play := func(c command.Command) {
				e := command.Entry{Commands: []command.Command{c}}
				out := m.Apply(m.Index()+1, 1, &e)
				for _, err := range []error{m.CheckTouched(), book.entry(&e, &out)} {
					if err != nil {
						t.Fatalf("queue %05b, removed in the order %v: %v", pattern, order, err)
					}
				}
			}
			for i, id := range ids {
				mode := command.Mode(pattern >> i & 1)
				play(command.Acquire{Session: id, Seq: 1, Spec: command.Spec{Names: []string{"x"}, Mode: mode, HasWait: true, Wait: 5}})
			}
			for step, i := range order {
				switch c, _ := m.Claim(command.ClaimID{Session: ids[i], Seq: 1}); {
				case c.State == command.Queued && step%3 == 0:
					play(command.EndWait{Term: 1, Claims: []command.ClaimID{{Session: ids[i], Seq: 1}}})
				case step%3 == 1:
					play(command.Expire{Term: 1, Sessions: ids[i : i+1]})
				default:
					play(command.Cancel{Session: ids[i], Seq: 1})
				}
			}
			if m.Counts().Names != 0 {
				t.Fatalf("queue %05b, removed in the order %v: something is left", pattern, order)
			}
		}
		if err := m.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
	}
}

// permutations lists all orders of the numbers below n.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := 0; i <= len(p); i++ {
			q := append([]int(nil), p[:i]...)
			all = append(all, append(append(q, n-1), p[i:]...))
		}
	}
	return all
}

// TestALongQueueIsNotQuadratic queues as many waiters as the limits allow for one name, asks for
// the position of each, and removes them from the middle. Walking the queue for each of these would
// take hundreds of millions of steps.
func TestALongQueueIsNotQuadratic(t *testing.T) {
	m, ids := opened(17)
	apply(m, exclusive(ids[16], 1, "x"))
	const waiters, each = 16_384, 1_024
	claim := func(i int) command.ClaimID { return command.ClaimID{Session: ids[i/each], Seq: uint64(i%each) + 1} }
	var batch []command.Command
	for i := range waiters {
		id := claim(i)
		batch = append(batch, command.Acquire{Session: id.Session, Seq: id.Seq, Floor: 1, Spec: command.Spec{Names: []string{"x"}}})
	}
	for i, r := range apply(m, batch...).Results {
		if r.Claim.State != command.Queued || r.Claim.Position != uint32(i+1) {
			t.Fatalf("waiter %d: %+v", i+1, r)
		}
	}
	// Every second one goes, in a scattered order.
	batch = batch[:0]
	for i := range waiters / 2 {
		id := claim(i * 7919 % (waiters / 2) * 2)
		batch = append(batch, command.Cancel{Session: id.Session, Seq: id.Seq, Floor: 1, Seen: 0})
	}
	apply(m, batch...)
	for i := range waiters / 2 {
		if c, _ := m.Claim(claim(2*i + 1)); c.Position != uint32(i+1) {
			t.Fatalf("waiter %d of those left has position %d", i+1, c.Position)
		}
	}
	if err := m.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
	if l := m.Lock("x", 100, 10); l.Waiting != waiters/2 || len(l.Waiters) != 10 || l.Waiters[0].Claim != claim(1) {
		t.Fatalf("%d waiters, %d shown", l.Waiting, len(l.Waiters))
	}
}

func TestAPageOfLocksIsBounded(t *testing.T) {
	m, _ := opened(1)
	const names, each = 600, 20
	var ids []command.SessionID
	for range each {
		ids = append(ids, apply(m, command.OpenSession{TTL: 1, ClientNumbered: true}).Results[0].Session)
	}
	for n := range uint64(names) {
		var take []command.Command
		for _, id := range ids {
			take = append(take, command.Acquire{Session: id, Seq: n + 1, Floor: n + 1, Spec: command.Spec{Names: []string{fmt.Sprintf("n%04d", n)}, Mode: command.Shared}})
		}
		apply(m, take...)
	}
	found, after := 0, ""
	for more := true; more; {
		var locks []command.Lock
		locks, more = m.Locks("", after, 1000)
		shown := 0
		for _, l := range locks {
			if l.Holding != each || len(l.Holders) != ListedHolders {
				t.Fatalf("%q shows %d of %d holders", l.Name, len(l.Holders), l.Holding)
			}
			shown += len(l.Holders)
		}
		if shown > MaxListed || len(locks) == 0 {
			t.Fatalf("a page of %d names shows %d holders", len(locks), shown)
		}
		found += len(locks)
		after = locks[len(locks)-1].Name
	}
	if found != names {
		t.Errorf("the pages have %d of %d names", found, names)
	}
}
