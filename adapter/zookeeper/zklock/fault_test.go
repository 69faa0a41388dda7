package zklock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zkserver"
)

// electionTTL outlasts the election of a leader on a busy machine.
const electionTTL = 9 * time.Second

// TestTheLeaderGoesUnderLoad has clients contend for one lock and hold others while the leader dies or freezes.
func TestTheLeaderGoesUnderLoad(t *testing.T) {
	e := startServers(t, 3, quick)
	for _, fault := range []struct {
		name        string
		hurt, mend  func(*zkserver.Ensemble, int) error
		losesNoLock bool
	}{
		{"killed", func(e *zkserver.Ensemble, i int) error { e.Kill(i); return nil }, (*zkserver.Ensemble).Start, true},
		{"frozen", (*zkserver.Ensemble).Freeze, (*zkserver.Ensemble).Thaw, false}, // noticed after syncLimit only
	} {
		t.Run(fault.name, func(t *testing.T) {
			run := contend(t, e, "faults/"+fault.name)
			leader := awaitLeader(t, e)
			before := run.await(5)
			if err := fault.hurt(e, leader); err != nil {
				t.Fatal(err)
			}
			run.await(before + 20)
			if err := fault.mend(e, leader); err != nil {
				t.Fatal(err)
			}
			run.stop()
			run.check(fault.losesNoLock)
		})
	}
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

// A contention is clients that want one lock, and hold one each for good.
type contention struct {
	t      *testing.T
	kept   []lockstep.Lock
	cancel context.CancelFunc
	group  sync.WaitGroup

	inside  atomic.Int64
	overlap atomic.Int64 // how often a holder met another that believed in its lock
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

// await waits for so many grants in all, and returns how many there were.
func (c *contention) await(n int) int {
	c.t.Helper()
	await(c.t, 45*time.Second, "grants go on", func() bool { return c.grants() >= n })
	return c.grants()
}

func (c *contention) stop() {
	c.cancel()
	c.group.Wait()
}

func (c *contention) check(losesNoLock bool) {
	c.t.Helper()
	if n := c.overlap.Load(); n != 0 {
		c.t.Errorf("%d holders met another", n)
	}
	for i, token := range c.tokens {
		if i > 0 && token <= c.tokens[i-1] {
			c.t.Errorf("token %d after %d", token, c.tokens[i-1])
		}
	}
	for _, kept := range c.kept {
		if err := kept.Check(); losesNoLock && err != nil {
			c.t.Errorf("%s was lost while its session could live: %v", kept.Name(), err)
		}
		if err := kept.Release(c.t.Context()); err != nil && !errors.Is(err, lockstep.ErrLost) {
			c.t.Errorf("release: %v", err)
		}
	}
	c.t.Logf("%d grants", len(c.tokens))
}

// TestAFollowerThatDiesTakesNoSignOfLifeWithIt cuts a client off by killing the only server that it knows, a follower. What that has not
// reported to the leader does not count there: the holder must know before the next is granted all the same. Sessions of two ticks make
// the time between reports long.
func TestAFollowerThatDiesTakesNoSignOfLifeWithIt(t *testing.T) {
	e, err := zkserver.Start(zkserver.Config{Dir: t.TempDir(), TickTime: time.Second, Options: []string{quick}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	follower := (awaitLeader(t, e) + 1) % 3
	var others []string
	for i, address := range e.Addresses() {
		if i != follower {
			others = append(others, address)
		}
	}
	rival := open(t, zklock.Config{Servers: others, TTL: 4 * time.Second})
	for round := range rounds {
		holder := open(t, zklock.Config{Servers: e.Addresses()[follower : follower+1], TTL: 2 * time.Second})
		lock, err := holder.Acquire(t.Context(), "faults/follower")
		if err != nil {
			t.Fatal(err)
		}
		next := acquireLater(t, rival, "faults/follower")
		awaitRenewal(t, lock)
		e.Kill(follower)
		killed := time.Now()
		<-lock.Context().Done()
		lost := time.Now()
		g := <-next
		if g.lock == nil {
			t.Fatal("the rival was not granted")
		}
		t.Logf("round %d: lost after %v, granted after %v", round, lost.Sub(killed), g.at.Sub(killed))
		if !g.at.After(lost) {
			t.Errorf("granted %v before the last holder knew", lost.Sub(g.at))
		}
		mustRelease(t, g.lock)
		if err := e.Start(follower); err != nil {
			t.Fatal(err)
		}
	}
}

// A grant is a lock and when it was had.
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

// TestAFrozenServerIsLeft freezes the servers one after the other except the leader: whoever is connected to one goes to another in time.
func TestAFrozenServerIsLeft(t *testing.T) {
	e := startServers(t, 3, quick)
	var held []lockstep.Lock
	for range 4 {
		l := open(t, zklock.Config{Servers: e.Addresses()})
		lock, err := l.Acquire(t.Context(), "faults/frozen/"+string(rune('a'+len(held))))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lock)
	}
	leader := awaitLeader(t, e)
	for i := range 3 {
		if i == leader {
			continue
		}
		if err := e.Freeze(i); err != nil {
			t.Fatal(err)
		}
		time.Sleep(suiteTTL + time.Second)
		if err := e.Thaw(i); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // it catches up before the other one goes
	}
	for _, lock := range held {
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("%s: %v", lock.Name(), err)
		}
	}
}
