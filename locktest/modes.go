package locktest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
)

func modeChecks() []check {
	return []check{
		{name: "shared holders hold together and exclude the others", needs: []need{claims(shared)}, run: checkShared},
		{name: "nobody passes a waiting exclusive claim", needs: []need{claims(shared), claims(fifo)}, run: checkNobodyPasses},
		{name: "tokens of shared holders fall behind no exclusive one", needs: []need{claims(shared), claims(fenced)}, run: checkSharedTokens},
		{name: "permits are shared out and come back", needs: []need{claims(permits)}, run: checkPermits},
		{name: "a name is one kind of lock at a time", needs: []need{claims(permits)}, run: checkMode},
		{name: "several names are had together or not at all", needs: []need{claims(multi)}, run: checkMulti},
		{name: "several names in opposite orders do not deadlock", needs: []need{claims(multi)}, run: checkOpposite},
		{name: "a lock delay follows no release", needs: []need{claims(lockDelay)}, run: checkDelayReleased},
		{name: "a lock delay follows an expiry", needs: []need{claims(lockDelay), canCut}, run: checkDelayExpired},
	}
}

func checkShared(e *env) {
	a, b := e.pair()
	name := e.name("x")
	one, two := e.acquire(a, name, lockstep.WithShared()), e.acquire(b, name, lockstep.WithShared())
	own := e.acquire(a, name, lockstep.WithShared())
	e.busy(b, name)
	checkModes(e, a, name, 3)
	writer := e.queue(b, name, 1)
	e.release(one)
	e.release(two)
	e.waiting(writer)
	checkModes(e, a, name, 1) // a single holder of a shared lock is still shared
	e.release(own)
	exclusive := e.granted(writer, e.soon())
	e.busy(a, name, lockstep.WithShared())
	e.release(exclusive)
	e.free(a, name, e.soon())
}

// checkModes expects n shared holders, and exclusive waiters.
func checkModes(e *env, l lockstep.Locker, name string, n int) {
	e.Helper()
	if _, ok := l.(lockstep.Inspector); !ok {
		return
	}
	state := e.inspect(l, name)
	if len(state.Holders) != n {
		e.Errorf("%d holders are shown, want %d", len(state.Holders), n)
	}
	for _, c := range state.Holders {
		if c.Mode != lockstep.Shared {
			e.Errorf("a shared holder is shown as %v", c.Mode)
		}
	}
	for _, c := range state.Waiters {
		if c.Mode != lockstep.Exclusive {
			e.Errorf("an exclusive waiter is shown as %v", c.Mode)
		}
	}
}

func checkNobodyPasses(e *env) {
	a, b := e.pair()
	name := e.name("x")
	reader := e.acquire(a, name, lockstep.WithShared())
	writer := e.queue(b, name, 1)
	e.busy(a, name, lockstep.WithShared())
	late := e.queue(a, name, 2, lockstep.WithShared())
	e.release(reader)
	exclusive := e.granted(writer, e.soon())
	e.waiting(late)
	e.release(exclusive)
	e.release(e.granted(late, e.soon()))
}

func checkSharedTokens(e *env) {
	a, b := e.pair()
	name := e.name("x")
	var last lockstep.Token
	for range 4 {
		writer := e.acquire(a, name)
		if writer.Token() <= last {
			e.Errorf("exclusive token %d after %d", writer.Token(), last)
		}
		last = writer.Token()
		e.release(writer)
		one, two := e.acquire(a, name, lockstep.WithShared()), e.acquire(b, name, lockstep.WithShared())
		for _, reader := range []lockstep.Lock{one, two} {
			if reader.Token() < last {
				e.Errorf("shared token %d after exclusive token %d", reader.Token(), last)
			}
		}
		last = max(one.Token(), two.Token())
		e.release(one)
		e.release(two)
	}
}

func checkPermits(e *env) {
	a, b := e.pair()
	name := e.name("x")
	one, two := e.acquire(a, name, lockstep.WithPermits(1, 3)), e.acquire(b, name, lockstep.WithPermits(2, 3))
	if one.Token() != 0 || two.Token() != 0 {
		e.Errorf("tokens %d and %d of permits, want 0: they have no order", one.Token(), two.Token())
	}
	e.busy(a, name, lockstep.WithPermits(1, 3))
	all := e.queue(a, name, 1, lockstep.WithPermits(3, 3))
	e.release(two)
	e.waiting(all)
	e.release(one)
	e.release(e.granted(all, e.soon()))
	var wg sync.WaitGroup
	for i := range 24 {
		l := []lockstep.Locker{a, b}[i%2]
		wg.Go(func() {
			lock, err := l.Acquire(e.limit(), name, lockstep.WithPermits(1+i%3, 3))
			if err != nil {
				e.Errorf("acquire: %v", err)
			} else if err := lock.Release(e.limit()); err != nil {
				e.Errorf("release: %v", err)
			}
		})
	}
	wg.Wait()
	e.release(e.acquire(a, name, lockstep.WithPermits(3, 3)))
}

func checkMode(e *env) {
	a, b := e.pair()
	held := e.acquire(a, e.name("x"), lockstep.WithPermits(1, 3))
	for what, opts := range map[string][]lockstep.AcquireOption{
		"lock":            nil,
		"semaphore of 4":  {lockstep.WithPermits(1, 4)},
		"try of the lock": {lockstep.WithWait(0)},
	} {
		if lock, err := b.Acquire(e.limit(), e.name("x"), opts...); !errors.Is(err, lockstep.ErrMode) {
			e.Errorf("%s on a semaphore of 3: %v, want ErrMode", what, err)
			if err == nil {
				lock.Release(e.limit())
			}
		}
	}
	e.release(held)
	e.free(b, e.name("x"), e.soon())
}

func checkMulti(e *env) {
	a, b := e.pair()
	x, y, z := e.name("x"), e.name("y"), e.name("z")
	middle := e.acquire(b, y)
	e.busy(a, x, lockstep.WithAlso(y, z))
	e.free(b, x, e.soon())
	e.free(b, z, e.soon())
	all := e.queue(a, x, 1, lockstep.WithAlso(y, z))
	e.waiting(all)
	e.release(middle)
	lock := e.granted(all, e.soon())
	if want := []string{x, y, z}; !slices.Equal(lock.Names(), want) || lock.Name() != x {
		e.Errorf("names %q, want %q", lock.Names(), want)
	}
	for _, name := range []string{x, y, z} {
		e.busy(b, name)
	}
	e.release(lock)
	for _, name := range []string{x, y, z} {
		next := e.acquire(b, name)
		if next.Token() <= lock.Token() {
			e.Errorf("token %d of %s after %d", next.Token(), name, lock.Token())
		}
		e.release(next)
	}
}

// checkOpposite makes many claims on 3 of 6 names in random order, some of them cancelled, with
// counters behind the names that reveal two holders at once.
func checkOpposite(e *env) {
	lockers := []lockstep.Locker{e.open(), e.open()}
	var inside [6]counter
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for range 10 {
				pick := rand.Perm(6)[:3]
				p := e.start(lockers[i%2], e.name(string(rune('a'+pick[0]))),
					lockstep.WithAlso(e.name(string(rune('a'+pick[1]))), e.name(string(rune('a'+pick[2])))))
				if rand.IntN(10) == 0 {
					p.cancel()
				}
				<-p.done
				if p.err != nil {
					continue
				}
				for _, n := range pick {
					inside[n].increment(p.lock.Token())
				}
				if err := p.lock.Release(e.limit()); err != nil {
					e.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for i := range inside {
		e.rising(inside[i].tokens)
		if n := inside[i].overlap.Load(); n != 0 {
			e.Errorf("%d holders met another", n)
		}
		e.free(lockers[0], e.name(string(rune('a'+i))), e.freeBy())
	}
}

func checkDelayReleased(e *env) {
	a, b := e.pair()
	e.release(e.acquire(a, e.name("x"), lockstep.WithLockDelay(lockstep.MaxLockDelay)))
	e.free(b, e.name("x"), e.soon())
}

// checkDelayExpired waits longer than any expiry takes, so that a backend without the delay is
// early by more than a loaded machine can be late.
func checkDelayExpired(e *env) {
	a, b := e.pair()
	delay := e.freeBy()
	lock := e.acquire(a, e.name("x"), lockstep.WithLockDelay(delay))
	next := e.start(b, e.name("x"))
	e.cut(a)
	cutAt := time.Now()
	e.lost(lock, e.caps.TTL+e.soon(), lockstep.LeaseEnded)
	e.release(e.granted(next, delay+e.freeBy()+e.backend.Slack))
	if got := next.at.Sub(cutAt); got < delay { // the expiry comes after the cut, and then the delay
		e.Errorf("granted %v after the holder was cut off, the delay alone is %v", got, delay)
	}
}
