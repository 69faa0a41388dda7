package memlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// TestNoTwoHoldersTrustOneLock lets workers take locks while every possible fault is injected into
// their Lockers. At no time do two of them trust that they hold the same name. When the faults have
// stopped and all workers are done, nothing is left in the space.
func TestNoTwoHoldersTrustOneLock(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

// A crowd keeps the locks that its workers hold, by name.
type crowd struct {
	space   *Space
	lockers []*Locker
	mu      sync.Mutex
	held    map[string][]lockstep.Lock
	last    map[string]lockstep.Token
	grants  int
}

func chaos(t *testing.T, seed uint64) {
	c := crowd{space: NewSpace(), held: map[string][]lockstep.Lock{}, last: map[string]lockstep.Token{}}
	for range 3 {
		c.lockers = append(c.lockers, c.space.Locker())
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				c.work(t, ctx, r, c.lockers[i%3])
			}
		})
	}
	wg.Go(func() { c.inject(ctx, rand.New(rand.NewPCG(seed, 99))) })
	wg.Wait()
	time.Sleep(time.Hour) // every lease and delay ends
	c.space.mu.Lock()
	defer c.space.mu.Unlock()
	if n := len(c.space.table.queues); n != 0 {
		t.Errorf("%d names are left", n)
	}
	for i, l := range c.lockers {
		if n := len(l.session.claims) + len(l.orphans) + len(l.undo); n != 0 {
			t.Errorf("%d claims of locker %d are left", n, i)
		}
	}
	if c.grants < 50 {
		t.Errorf("%d grants: too few to show anything", c.grants)
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

func (c *crowd) work(t *testing.T, ctx context.Context, r *rand.Rand, l *Locker) {
	name := []string{"a/1", "a/2"}[r.IntN(2)]
	var opts []lockstep.AcquireOption
	switch r.IntN(5) {
	case 0:
		opts = append(opts, lockstep.WithWait(upTo(r, 20*time.Second)))
	case 1:
		opts = append(opts, lockstep.WithLockDelay(upTo(r, time.Minute)))
	case 2:
		opts = append(opts, lockstep.WithMaxHold(time.Second+upTo(r, 20*time.Second)))
	case 3:
		opts = append(opts, lockstep.WithAlso(map[string]string{"a/1": "a/2", "a/2": "a/1"}[name]))
	}
	ctx, cancel := context.WithTimeout(ctx, 1+upTo(r, 2*time.Minute))
	defer cancel()
	lock, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return
	}
	c.take(t, lock)
	select { // the work
	case <-lock.Context().Done():
	case <-time.After(upTo(r, 15*time.Second)):
	}
	switch err := lock.Release(ctx); {
	case err == nil, errors.Is(err, lockstep.ErrLost), errors.Is(err, lockstep.ErrUncertain):
	default:
		t.Errorf("release: %v", err)
	}
	if lock.Check() == nil {
		t.Errorf("a lock is held after its release")
	}
}

// take records a new lock and checks whether anyone else trusts that they hold its names.
func (c *crowd) take(t *testing.T, lock lockstep.Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lock.Check() != nil { // lost before its worker ran: another may hold the name by now
		return
	}
	c.grants++
	for _, name := range lock.Names() {
		var still []lockstep.Lock
		for _, other := range c.held[name] {
			if other.Check() == nil {
				still = append(still, other)
			}
		}
		if len(still) > 0 {
			t.Errorf("%s: token %d was granted while the holder of token %d trusts its lock", name, lock.Token(), still[0].Token())
		}
		if lock.Token() <= c.last[name] {
			t.Errorf("%s: token %d after %d", name, lock.Token(), c.last[name])
		}
		c.last[name] = lock.Token()
		c.held[name] = append(still, lock)
	}
}

func (l *Locker) reachable() bool {
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	return l.cut == nil
}

// inject injects a fault into a Locker or a name every few seconds, and heals at the end.
func (c *crowd) inject(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(upTo(r, 10*time.Second))
		l, name := c.lockers[r.IntN(3)], []string{"a/1", "a/2"}[r.IntN(2)]
		switch r.IntN(8) {
		case 0, 1:
			l.Cut()
		case 2, 3, 4:
			l.Heal()
		case 5:
			c.space.Revoke(name, "alice")
		case 6:
			if l.reachable() { // otherwise its holders could not know
				l.Expire()
			}
		case 7:
			if c.lockers[0].reachable() && c.lockers[1].reachable() && c.lockers[2].reachable() {
				c.space.Delete(name)
			}
		}
	}
	for _, l := range c.lockers {
		l.Heal()
	}
}
