package locktest

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lockstep-dev/lockstep"
)

func exclusionChecks() []check {
	return []check{
		{name: "holders exclude each other", run: checkExclusion},
		{name: "goroutines that share a locker exclude each other", alone: true, run: checkManyGoroutines},
		{name: "names do not exclude each other", run: checkNames},
		{name: "tokens rise from holder to holder", needs: []need{claims(fenced)}, run: checkTokens},
	}
}

// A counter is the resource that the lock guards. Its load and its store are two steps, so an
// increment is lost if two holders work at once.
type counter struct {
	value   atomic.Int64
	inside  atomic.Int64
	overlap atomic.Int64 // how often a holder met another

	mu     sync.Mutex
	tokens []lockstep.Token // in the order of the increments
}

func (c *counter) increment(token lockstep.Token) {
	if c.inside.Add(1) != 1 {
		c.overlap.Add(1)
	}
	v := c.value.Load()
	runtime.Gosched()
	c.mu.Lock()
	c.tokens = append(c.tokens, token)
	c.mu.Unlock()
	c.value.Store(v + 1)
	c.inside.Add(-1)
}

// contend increments the counter from workers goroutines, rounds times each.
func (e *env) contend(lockers []lockstep.Locker, name string, workers, rounds int) *counter {
	e.Helper()
	var c counter
	var wg sync.WaitGroup
	ctx := e.limit()
	for i := range workers {
		l := lockers[i%len(lockers)]
		wg.Go(func() {
			for range rounds {
				lock, err := l.Acquire(ctx, name)
				if err != nil {
					e.Errorf("acquire: %v", err)
					return
				}
				c.increment(lock.Token())
				if err := lock.Release(ctx); err != nil {
					e.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if got, want := c.value.Load(), int64(workers*rounds); got != want || c.overlap.Load() != 0 {
		e.Errorf("the counter is %d after %d increments, %d of them beside another holder", got, want, c.overlap.Load())
	}
	return &c
}

func checkExclusion(e *env) {
	a, b := e.pair()
	c := e.contend([]lockstep.Locker{a, b, e.open()}, e.name("counter"), 12, 8)
	if e.caps.Fenced {
		e.rising(c.tokens)
	}
}

func checkManyGoroutines(e *env) {
	c := e.contend([]lockstep.Locker{e.open()}, e.name("counter"), e.backend.Goroutines, 1)
	if e.caps.Fenced {
		e.rising(c.tokens)
	}
}

func checkNames(e *env) {
	a, b := e.pair()
	one := e.acquire(a, e.name("one"))
	e.free(b, e.name("two"), e.soon())
	e.free(b, e.name("one")+"/below", e.soon())
	e.busy(b, e.name("one"))
	e.release(one)
}

func checkTokens(e *env) {
	lockers := []lockstep.Locker{e.open(), e.open()}
	var tokens []lockstep.Token
	for i := range 12 {
		lock := e.acquire(lockers[i%2], e.name("x"))
		tokens = append(tokens, lock.Token())
		e.release(lock)
	}
	e.rising(tokens)
}

// rising checks that each token is legal and larger than the one before.
func (e *env) rising(tokens []lockstep.Token) {
	e.Helper()
	for i, token := range tokens {
		if token == 0 || token > lockstep.MaxToken {
			e.Errorf("token %d, want 1 to %d", token, lockstep.MaxToken)
		}
		if i > 0 && token <= tokens[i-1] {
			e.Errorf("token %d after token %d", token, tokens[i-1])
		}
	}
}
