package zklock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
	"github.com/lockstep-dev/lockstep/internal/testbed/zkserver"
)

// electionTTL outlasts the election of a leader on a busy machine.
const electionTTL = 9 * time.Second

// testLeader makes clients contend for one lock and hold others while the leader is disturbed and
// repaired.
func testLeader(t *testing.T, e *zkserver.Ensemble, name string, hurt, mend func(int) error) *contention {
	t.Helper()
	run := contend(t, e, "faults/"+name)
	leader := awaitLeader(t, e)
	before := run.await(5)
	if err := hurt(leader); err != nil {
		t.Fatal(err)
	}
	run.await(before + 20)
	if err := mend(leader); err != nil {
		t.Fatal(err)
	}
	run.stop()
	run.check()
	return run
}

func awaitLeader(t *testing.T, e *zkserver.Ensemble) (leader int) {
	t.Helper()
	await(t, 30*time.Second, "a server leads", func() bool {
		var err error
		leader, err = e.Leader()
		return err == nil
	})
	return leader
}

func await(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// A contention is a set of clients that contend for one lock, and each hold another one throughout.
type contention struct {
	t      *testing.T
	kept   []lockstep.Lock
	cancel context.CancelFunc
	group  sync.WaitGroup

	inside  atomic.Int64
	overlap atomic.Int64 // how often a holder met another that still trusted its lock
	mu      sync.Mutex
	tokens  []lockstep.Token // in the order of the grants
}

func contend(t *testing.T, e *zkserver.Ensemble, name string) *contention {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c := &contention{t: t, cancel: cancel}
	for i := range 3 {
		l := open(t, zklock.Config{Servers: e.Addresses(), TTL: electionTTL, TickTime: 500 * time.Millisecond})
		kept, err := l.Acquire(ctx, name+"/kept/"+string(rune('a'+i)))
		if err != nil {
			t.Fatal(err)
		}
		c.kept = append(c.kept, kept)
		for range 2 {
			c.group.Go(func() { c.work(ctx, l, name) })
		}
	}
	return c
}

func (c *contention) work(ctx context.Context, l lockstep.Locker, name string) {
	for ctx.Err() == nil {
		lock, err := l.Acquire(ctx, name)
		if err != nil {
			continue // an outage may be longer than the patience of one call
		}
		c.hold(lock)
		lock.Release(context.WithoutCancel(ctx)) // uncertain while no server leads: undone later
	}
}

func (c *contention) hold(lock lockstep.Lock) {
	c.mu.Lock()
	c.tokens = append(c.tokens, lock.Token())
	c.mu.Unlock()
	if c.inside.Add(1) != 1 && lock.Check() == nil {
		c.overlap.Add(1)
	}
	time.Sleep(2 * time.Millisecond)
	c.inside.Add(-1)
}

func (c *contention) grants() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tokens)
}

// await waits until there are n grants in total, and returns how many there were.
func (c *contention) await(n int) int {
	c.t.Helper()
	await(c.t, 45*time.Second, "grants go on", func() bool { return c.grants() >= n })
	return c.grants()
}

func (c *contention) stop() {
	c.cancel()
	c.group.Wait()
}

// check checks that holders excluded each other and tokens rose.
func (c *contention) check() {
	c.t.Helper()
	if n := c.overlap.Load(); n != 0 {
		c.t.Errorf("%d holders met another", n)
	}
	for i, token := range c.tokens {
		if i > 0 && token <= c.tokens[i-1] {
			c.t.Errorf("token %d after %d", token, c.tokens[i-1])
		}
	}
	c.t.Logf("%d grants", len(c.tokens))
}

// keeps checks that the fault was too short to lose a lock.
func (c *contention) keeps() {
	c.t.Helper()
	for _, kept := range c.kept {
		if err := kept.Release(c.t.Context()); err != nil {
			c.t.Errorf("%s was lost while its session could live: %v", kept.Name(), err)
		}
	}
}

// A grant is a lock and when it was granted.
type grant struct {
	lock lockstep.Lock
	at   time.Time
}

func acquireLater(t *testing.T, l lockstep.Locker, name string) <-chan grant {
	later := make(chan grant, 1)
	go func() {
		lock, err := l.Acquire(t.Context(), name)
		if err != nil {
			t.Error(err)
		}
		later <- grant{lock, time.Now()}
	}()
	return later
}

// rounds bounds the time of the test.
const rounds = 2

// awaitRenewal returns when the lease has just been renewed for the second time.
func awaitRenewal(t *testing.T, lock lockstep.Lock) {
	t.Helper()
	for range 2 {
		last := lock.Remaining()
		await(t, 10*time.Second, "the lease is renewed", func() bool {
			now := lock.Remaining()
			isRenewed := now > last
			last = now
			return isRenewed
		})
	}
}

// testFrozenFollower freezes a server to which about half of the clients are connected: they switch
// to another in time.
func testFrozenFollower(t *testing.T, e *zkserver.Ensemble) {
	leader := awaitLeader(t, e)
	follower := (leader + 1) % 3
	known := []string{e.Addresses()[leader], e.Addresses()[follower]}
	var held []lockstep.Lock
	for i := range 6 {
		l := open(t, zklock.Config{Servers: known})
		held = append(held, mustAcquire(t, l, "faults/follower/"+string(rune('a'+i))))
	}
	if err := e.Freeze(follower); err != nil {
		t.Fatal(err)
	}
	time.Sleep(suiteTTL + time.Second)
	for _, lock := range held {
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("%s: %v", lock.Name(), err)
		}
	}
	if err := e.Thaw(follower); err != nil {
		t.Fatal(err)
	}
}
