package etcdlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
)

func leader(t *testing.T, c *etcdserver.Cluster) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	i, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// A resource records who uses it.
type resource struct {
	inside, overlaps atomic.Int64

	mu     sync.Mutex
	tokens []lockstep.Token // of its uses, in order
}

func (r *resource) use(token lockstep.Token) {
	if r.inside.Add(1) != 1 {
		r.overlaps.Add(1)
	}
	r.mu.Lock()
	r.tokens = append(r.tokens, token)
	r.mu.Unlock()
	time.Sleep(time.Millisecond)
	r.inside.Add(-1)
}

func (r *resource) uses() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tokens)
}

// contend uses the resource under the lock until ctx is done. Acquisitions and releases that fail
// while there is no leader are retried.
func (r *resource) contend(ctx context.Context, l lockstep.Locker, name string) {
	for ctx.Err() == nil {
		k, err := l.Acquire(ctx, name)
		if err != nil {
			continue
		}
		if k.Check() == nil {
			r.use(k.Token())
		}
		k.Release(context.WithoutCancel(ctx))
	}
}

func (r *resource) check(t *testing.T) {
	t.Helper()
	if n := r.overlaps.Load(); n != 0 {
		t.Errorf("%d uses beside another", n)
	}
	for i := 1; i < len(r.tokens); i++ {
		if r.tokens[i] <= r.tokens[i-1] {
			t.Fatalf("token %d after %d", r.tokens[i], r.tokens[i-1])
		}
	}
}

// The leader dies and comes back while others ask for locks. No two claims hold a lock at once, and
// no lock is lost.
func TestALeaderMayDieUnderLoad(t *testing.T) {
	c := startCluster(t, 3)
	cfg := etcdlock.Config{TTL: 15 * time.Second} // nothing waits for its end
	held := acquire(t, sit(t, c, cfg), "held")
	ctx, stop := context.WithCancel(t.Context())
	var r resource
	var group sync.WaitGroup
	for range 4 {
		l := sit(t, c, cfg)
		group.Go(func() { r.contend(ctx, l, "contended") })
	}
	progress := func() {
		t.Helper()
		before, began := r.uses(), time.Now()
		until(t, "the lock is handed over", func() bool { return r.uses() > before+4 })
		t.Logf("four times after %v", time.Since(began))
	}
	progress()

	first := leader(t, c)
	c.Kill(first)
	progress()
	if err := c.Start(first); err != nil {
		t.Fatal(err)
	}
	progress()

	stop()
	group.Wait()
	r.check(t)
	if err := held.Check(); err != nil {
		t.Errorf("a lock was lost with a leader: %v", err)
	}
	release(t, held)
}

// The leader freezes for longer than the lease, and thaws. Its successor renews, so nothing is lost
// until then. What etcd does when the old leader resumes is beyond our control: the old leader may
// still revoke leases that had run out by its clock, and etcd accepts that although they have been
// renewed since (etcd-io/etcd#15247). Then the holder is notified at once, and the next token is
// larger.
func TestALeaderThatThawsMayTakeLocksAwayAndTheirHoldersAreTold(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	cfg := etcdlock.Config{TTL: 12 * time.Second} // outlasts the election and the reconnection, even on a busy machine
	a, b := sit(t, c, cfg), sit(t, c, cfg)
	held := acquire(t, a, "held")
	frozen := leader(t, c)
	if err := c.Freeze(frozen); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * cfg.TTL / 2)
	if err := held.Check(); err != nil {
		t.Errorf("lost while the old leader stood still: %v", err)
	}
	if err := c.Thaw(frozen); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // time for the thawed leader to act on what it still believes
	// It may also be taken away later, so a check says nothing about the release.
	switch err := errors.Join(held.Check(), held.Release(t.Context())); {
	case err == nil:
		t.Log("etcd took nothing away")
	case errors.Is(err, lockstep.ErrLost):
		t.Logf("etcd took the lock away: %v", err)
	default:
		t.Errorf("check and release: %v", err)
	}
	if next := acquire(t, b, "held"); next.Token() <= held.Token() {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
}

// Without a majority nothing is granted and nothing is renewed.
func TestWithoutAMajorityLocksEndInTimeAndNoneIsGranted(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	cfg := etcdlock.Config{TTL: 2 * time.Second, UnavailableAfter: 3 * time.Second}
	a, b := sit(t, c, cfg), sit(t, c, cfg)
	k := acquire(t, a, "x")
	release(t, acquire(t, b, "warm"))
	i := leader(t, c)
	c.Kill((i + 1) % 3)
	c.Kill((i + 2) % 3)
	// A leader steps down when it has heard from no majority for one to two election timeouts, and
	// renews until then.
	until(t, "the lock ends", func() bool { return errors.Is(k.Check(), lockstep.ErrLost) })
	if _, err := b.Acquire(t.Context(), "y"); !errors.Is(err, lockstep.ErrUnavailable) && !errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("acquire without a majority: %v, want ErrUnavailable or ErrUncertain", err)
	}
	for _, j := range []int{(i + 1) % 3, (i + 2) % 3} {
		go c.Start(j)
	}
	if again := acquire(t, b, "x"); again.Token() <= k.Token() {
		t.Errorf("token %d after %d", again.Token(), k.Token())
	}
	release(t, acquire(t, a, "y"))
}

// One of three connections delivers nothing but is not closed either, which a client without
// keepalives does not notice.
func TestOneDeadConnectionCostsNoLease(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	cfg := etcdlock.Config{TTL: 6 * time.Second}
	a := sit(t, c, cfg)
	k := acquire(t, a, "x")
	a.proxies[0].Cut()
	time.Sleep(5 * cfg.TTL / 2)
	if err := k.Check(); err != nil {
		t.Errorf("the lock is lost: %v", err)
	}
	a.heal()
	release(t, k)
}
