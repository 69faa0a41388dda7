package redlock_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redlock"
)

var killsFor = flag.Duration("kills.for", 8*time.Second, "how long TestKillsAndRestarts kills servers that forget nothing")

const killClients = 16

// holds is the diary of one lock: who has it, and what was wrong about that.
type holds struct {
	mu       sync.Mutex
	current  lockstep.Lock
	last     lockstep.Token
	grants   int
	overlaps int
	disorder []string
}

// lastToken is the largest token so far.
func (h *holds) lastToken() lockstep.Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// begin records a holder that requested the lock when before was the largest token.
func (h *holds) begin(lock lockstep.Lock, before lockstep.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lock.Check() != nil {
		return // the lease ended before anyone could act on it
	}
	h.grants++
	if h.current != nil && h.current.Check() == nil {
		h.overlaps++
	} else if lock.Token() <= h.last { // of two holders at once, the later may be recorded first
		h.disorder = append(h.disorder, fmt.Sprintf("token %d after %d", lock.Token(), h.last))
	}
	if lock.Token() <= before {
		h.disorder = append(h.disorder, fmt.Sprintf("token %d, asked for after %d was given", lock.Token(), before))
	}
	h.current, h.last = lock, max(h.last, lock.Token())
}

// end records that the holder is about to release the lock.
func (h *holds) end(lock lockstep.Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == lock {
		h.current = nil
	}
}

func (h *holds) count() (grants, overlaps int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grants, h.overlaps
}

// contend lets clients take turns with one lock until ctx is done. Each holds it for up to hold, or
// until it is lost.
func (h *holds) contend(ctx context.Context, lockers []*redlock.Locker, hold time.Duration) {
	var group sync.WaitGroup
	for _, l := range lockers {
		group.Go(func() {
			for ctx.Err() == nil {
				h.turn(ctx, l, time.Duration(rand.Int64N(int64(hold))))
			}
		})
	}
	group.Wait()
}

func (h *holds) turn(ctx context.Context, l *redlock.Locker, hold time.Duration) {
	before := h.lastToken()
	lock, err := l.Acquire(ctx, "jobs/x")
	if err != nil {
		return // too many servers are down, or the run is over
	}
	h.begin(lock, before)
	select {
	case <-time.After(hold):
	case <-lock.Context().Done():
	}
	h.end(lock)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	lock.Release(ctx) // a lock that cannot be released ends with its lease
}

// killAndRestart repeatedly kills count servers at once and restarts them after a while, until ctx
// is done.
func (m masters) killAndRestart(t *testing.T, ctx context.Context, count func() int, down time.Duration) (rounds int) {
	for ctx.Err() == nil {
		victims := rand.Perm(len(m))[:count()]
		m.kill(victims...)
		pause(ctx, time.Duration(rand.Int64N(int64(down))))
		m.start(t, victims...)
		pause(ctx, time.Duration(rand.Int64N(int64(down))))
		rounds++
	}
	return rounds
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (m masters) lockers(t *testing.T, count int) (all []*redlock.Locker) {
	for range count {
		all = append(all, m.open(t, patient()))
	}
	return all
}

// TestKillsAndRestarts shows both sides: with servers that keep their data no kill breaks the lock,
// and with servers that lose it the same kills do. Without the second half the first would prove
// nothing.
func TestKillsAndRestarts(t *testing.T) {
	t.Run("with persistence", func(t *testing.T) {
		m := durable(t)
		lockers := m.lockers(t, killClients)
		ctx, cancel := context.WithTimeout(t.Context(), *killsFor)
		defer cancel()
		h := &holds{}
		var group sync.WaitGroup
		group.Go(func() { h.contend(ctx, lockers, 20*time.Millisecond) })
		rounds := m.killAndRestart(t, ctx, func() int { return 2 + rand.IntN(2) }, 600*time.Millisecond)
		group.Wait()
		t.Logf("%d grants to %d clients while 2 or 3 of 5 servers were killed and restarted %d times", h.grants, killClients, rounds)
		if h.grants < 10 || rounds < 3 {
			t.Errorf("%d grants and %d rounds prove nothing", h.grants, rounds)
		}
		if h.overlaps > 0 || len(h.disorder) > 0 {
			t.Errorf("%d grants overlap, tokens: %v", h.overlaps, h.disorder)
		}
	})
	t.Run("without persistence", func(t *testing.T) {
		m := forgetful(t)
		lockers := m.lockers(t, killClients)
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		h := &holds{}
		var group sync.WaitGroup
		group.Go(func() { h.contend(ctx, lockers, 2*time.Second) })
		group.Go(func() {
			for ctx.Err() == nil {
				if _, overlaps := h.count(); overlaps > 0 {
					cancel()
				}
				pause(ctx, 10*time.Millisecond)
			}
		})
		m.killAndRestart(t, ctx, func() int { return 3 }, 300*time.Millisecond)
		group.Wait()
		t.Logf("%d grants, %d of them beside another holder", h.grants, h.overlaps)
		if h.overlaps == 0 {
			t.Error("no lock was granted twice: the half with persistence proves nothing")
		}
		if len(h.disorder) > 0 {
			t.Errorf("tokens: %v", h.disorder)
		}
	})
}
