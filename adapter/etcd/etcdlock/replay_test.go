package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
)

// patience bounds what should happen at once, on a machine busy with other tests.
const patience = 20 * time.Second

// A pending is an Acquire in the background.
type pending struct {
	cancel context.CancelFunc
	done   chan struct{}
	lock   lockstep.Lock
	err    error
}

func begin(t *testing.T, l lockstep.Locker, name string, opts ...lockstep.AcquireOption) *pending {
	ctx, cancel := context.WithCancel(t.Context())
	p := &pending{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.lock, p.err = l.Acquire(ctx, name, opts...)
	}()
	return p
}

func (p *pending) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *pending) granted(t *testing.T) lockstep.Lock {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("not granted")
	}
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.lock
}

func acquire(t *testing.T, l lockstep.Locker, name string, opts ...lockstep.AcquireOption) lockstep.Lock {
	t.Helper()
	return begin(t, l, name, opts...).granted(t)
}

func release(t *testing.T, k lockstep.Lock) {
	t.Helper()
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

func waiters(t *testing.T, l lockstep.Inspector, name string) int {
	s, err := l.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return len(s.Waiters)
}

// queue starts an Acquire and returns when it is the n-th waiter.
func queue(t *testing.T, l *seat, name string, n int, opts ...lockstep.AcquireOption) *pending {
	t.Helper()
	p := begin(t, l, name, opts...)
	until(t, fmt.Sprintf("%s has %d waiters", name, n), func() bool { return waiters(t, l, name) == n })
	return p
}

// etcd#11456, etcd#19597: the session of a waiter ends while it is queued.
func TestAWaiterWhoseSessionEndsGoesToTheEndOfTheQueue(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	admin := connect(t, c.Endpoints())
	cfg := etcdlock.Config{TTL: 3 * time.Second}
	a, b, d := sit(t, c, cfg), sit(t, c, cfg), sit(t, c, cfg)
	held := acquire(t, a, "x")
	dead := queue(t, b, "x", 1)
	alive := queue(t, d, "x", 2)
	s, err := a.Inspect(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	ended := s.Waiters[0].Owner
	id, err := strconv.ParseInt(ended, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Revoke(t.Context(), clientv3.LeaseID(id)); err != nil {
		t.Fatal(err)
	}
	until(t, "it is queued anew, behind the other", func() bool {
		s, err := a.Inspect(t.Context(), "x")
		return err == nil && len(s.Waiters) == 2 && s.Waiters[1].Owner != ended && s.Waiters[0].Owner != ended
	})
	release(t, held)
	next := alive.granted(t)
	if dead.isDone() {
		t.Fatalf("the waiter whose session has ended is done beside the holder: %v", dead.err)
	}
	release(t, next)
	last := dead.granted(t)
	if last.Token() <= next.Token() || next.Token() <= held.Token() {
		t.Errorf("tokens %d, %d, %d do not rise", held.Token(), next.Token(), last.Token())
	}
}

// etcd#16221: readers and writers in every order, and one of those in the middle leaves.
func TestAMiddleWaiterMayLeaveInEveryOrder(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	cfg := etcdlock.Config{TTL: 10 * time.Second}
	seats := []*seat{sit(t, c, cfg), sit(t, c, cfg)}
	for modes := range 16 {
		for leaves := 1; leaves <= 2; leaves++ {
			name := fmt.Sprintf("modes-%04b/without-%d", modes, leaves)
			t.Run(name, func(t *testing.T) { leaveTheMiddle(t, seats, name, modes, leaves) })
		}
	}
}

// leaveTheMiddle queues four claims, of which bit i of modes says whether claim i is shared. One
// leaves, the first is released.
func leaveTheMiddle(t *testing.T, seats []*seat, name string, modes, leaves int) {
	shared := func(i int) bool { return modes>>i&1 == 1 }
	var claims []*pending
	for i := range 4 {
		var opts []lockstep.AcquireOption
		if shared(i) {
			opts = append(opts, lockstep.WithShared())
		}
		p := begin(t, seats[i%2], name, opts...)
		until(t, "the claim is there", func() bool {
			s, err := seats[0].Inspect(t.Context(), name)
			return err == nil && len(s.Holders)+len(s.Waiters) == i+1
		})
		claims = append(claims, p)
	}
	claims[leaves].cancel()
	<-claims[leaves].done
	if claims[leaves].err == nil {
		release(t, claims[leaves].lock) // it held the lock together with the first
	}
	rest := []int{0, 1, 2, 3}
	rest = append(rest[:leaves], rest[leaves+1:]...)
	for len(rest) != 0 {
		together := 1
		for shared(rest[0]) && together < len(rest) && shared(rest[together]) {
			together++
		}
		for _, i := range rest[:together] {
			claims[i].granted(t)
		}
		for _, i := range rest[together:] {
			if claims[i].isDone() {
				t.Errorf("claim %d is done while %v hold the lock: %v", i, rest[:together], claims[i].err)
			}
		}
		release(t, claims[rest[0]].lock)
		rest = rest[1:]
	}
}

func TestSharedHoldersHaveOneTokenBetweenThoseOfTheirNeighbours(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	cfg := etcdlock.Config{TTL: 5 * time.Second}
	a, b := sit(t, c, cfg), sit(t, c, cfg)
	before := acquire(t, a, "x")
	release(t, before)
	first := acquire(t, a, "x", lockstep.WithShared())
	second := acquire(t, b, "x", lockstep.WithShared())
	release(t, first) // the token outlives the claim that it came from
	third := acquire(t, a, "x", lockstep.WithShared())
	if first.Token() <= before.Token() || second.Token() != first.Token() || third.Token() != first.Token() {
		t.Errorf("tokens %d, %d, %d of shared holders after %d", first.Token(), second.Token(), third.Token(), before.Token())
	}
	s, err := a.Inspect(t.Context(), "x")
	if err != nil || len(s.Holders) != 2 || s.Holders[0].Token != first.Token() || s.Holders[1].Token != first.Token() {
		t.Errorf("state %+v, err %v", s, err)
	}
	after := begin(t, b, "x")
	release(t, second)
	release(t, third)
	if token := after.granted(t).Token(); token <= first.Token() {
		t.Errorf("exclusive token %d after shared token %d", token, first.Token())
	}
}

func TestAWaitInVainTellsWhoIsAhead(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	cfg := etcdlock.Config{TTL: 10 * time.Second}
	a, b := sit(t, c, cfg), sit(t, c, cfg)
	held := acquire(t, a, "x", lockstep.WithMetadata(map[string]string{"host": "h1"}))
	queue(t, a, "x", 1)
	release(t, acquire(t, b, "warm"))
	_, err := b.Acquire(t.Context(), "x", lockstep.WithWait(time.Second))
	busy, ok := errors.AsType[*lockstep.BusyError](err)
	if !ok || busy.Position != 2 || len(busy.Holders) != 1 || busy.Holders[0].Token != held.Token() || busy.Holders[0].Metadata["host"] != "h1" {
		t.Errorf("error %v: %+v", err, busy)
	}
	until(t, "it leaves the queue", func() bool { return waiters(t, a, "x") == 1 })
}

// Compaction removes the revisions that a watch would continue from after an outage.
func TestACompactionLosesNoGrantAndNoLoss(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	admin := connect(t, c.Endpoints())
	cfg := etcdlock.Config{TTL: 10 * time.Second}
	a, b := sit(t, c, cfg), sit(t, c, cfg)
	first, held := acquire(t, a, "x"), acquire(t, b, "y")
	waits := queue(t, b, "x", 1)
	b.cut()
	release(t, first)
	answer, err := admin.Put(t.Context(), "elsewhere", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Compact(t.Context(), answer.Header.Revision); err != nil {
		t.Fatal(err)
	}
	b.heal()
	release(t, waits.granted(t))
	if err := held.Check(); err != nil {
		t.Errorf("the other lock is lost: %v", err)
	}
	if _, err := admin.Delete(t.Context(), root("y"), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	lost(t, held, lockstep.RecordMissing)
}

func lost(t *testing.T, k lockstep.Lock, want lockstep.LossReason) {
	t.Helper()
	select {
	case <-k.Context().Done():
	case <-time.After(patience):
		t.Fatal("the lock is not lost")
	}
	loss, ok := errors.AsType[*lockstep.LossError](context.Cause(k.Context()))
	if !ok || loss.Reason != want {
		t.Errorf("lost for %v, want %v", context.Cause(k.Context()), want)
	}
}

func TestASessionWhoseKeyIsGoneIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	admin := connect(t, c.Endpoints())
	a := sit(t, c, etcdlock.Config{TTL: 10 * time.Second})
	first := acquire(t, a, "x")
	if _, err := admin.Delete(t.Context(), "lockstep/_session/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, a, "x") // it waits for the lock of the old session, which ends with it
	lost(t, first, lockstep.SessionExpired)
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	release(t, second)
}

func TestAClosedLockerShowsNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	l := sit(t, c, etcdlock.Config{})
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Inspect(t.Context(), "x"); !errors.Is(err, lockstep.ErrClosed) {
		t.Errorf("inspect: %v", err)
	}
	for s, err := range l.Watch(t.Context(), "x") {
		if !errors.Is(err, lockstep.ErrClosed) {
			t.Errorf("watch: %+v, %v", s, err)
		}
	}
}
