package locktest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
)

func lifecycleChecks() []check {
	return []check{
		{name: "capabilities are those that the backend must claim", run: checkClaims},
		{name: "close frees what is held and ends what waits", run: checkClose},
		{name: "a closed locker hands out nothing", run: checkClosed},
		{name: "no goroutine is left after close", alone: true, run: checkGoroutines},
	}
}

func checkClaims(e *env) {
	got := e.open().Capabilities()
	if err := lockstep.CheckTTL(got.TTL); err != nil && got.Backend != "memory" {
		e.Errorf("the TTL as claimed: %v", err)
	}
	if got.Grace < 0 {
		e.Errorf("grace %v", got.Grace)
	}
	if got.Backend == "" || strings.TrimSpace(got.Backend) != got.Backend {
		e.Errorf("backend name %q", got.Backend)
	}
	want, known := claimsOf[got.Backend]
	if e.backend.Claims != nil {
		want, known = *e.backend.Claims, true
	}
	if !known {
		e.Fatalf("no table says what backend %q must claim: set Backend.Claims", got.Backend)
	}
	for _, p := range promises {
		if p.of(got) != p.of(want) {
			e.Errorf("claims %s = %v, want %v", p.name, p.of(got), p.of(want))
		}
	}
}

func checkClose(e *env) {
	a, b := e.pair()
	mine, theirs := e.acquire(a, e.name("mine")), e.acquire(b, e.name("theirs"))
	waits := e.queue(a, e.name("theirs"), 1)
	for range 2 {
		if err := a.Close(e.limit()); err != nil {
			e.Errorf("close: %v", err)
		}
	}
	e.ended(waits, e.soon())
	if !errors.Is(waits.err, lockstep.ErrClosed) {
		e.Errorf("waiting acquire: %v, want ErrClosed", waits.err)
	}
	if cause := e.over(mine, e.soon()); !errors.Is(cause, lockstep.ErrReleased) {
		e.Errorf("cause of the lock of a closed locker: %v, want ErrReleased", cause)
	}
	e.free(b, e.name("mine"), e.soon())
	e.held(theirs)
	e.release(theirs)
	e.free(b, e.name("theirs"), e.soon())
}

func checkClosed(e *env) {
	l := e.open()
	if err := l.Close(e.limit()); err != nil {
		e.Errorf("close: %v", err)
	}
	if _, err := l.Acquire(e.limit(), e.name("any")); !errors.Is(err, lockstep.ErrClosed) {
		e.Errorf("acquire: %v, want ErrClosed", err)
	}
	if l.Capabilities().Backend != e.caps.Backend {
		e.Errorf("capabilities have changed")
	}
}

func checkGoroutines(e *env) {
	before := runtime.NumGoroutine()
	lockers := []lockstep.Locker{e.backend.New(e.t), e.backend.New(e.t), e.backend.New(e.t)}
	var waits []*pending
	for i := range 30 {
		waits = append(waits, e.start(lockers[i%3], e.name(string(rune('a'+i%5)))))
	}
	e.sleep(e.backend.Settle)
	for i, p := range waits {
		if i%2 == 0 {
			p.cancel()
		}
	}
	for _, l := range lockers {
		if err := l.Close(e.limit()); err != nil {
			e.Errorf("close: %v", err)
		}
	}
	for _, p := range waits {
		e.ended(p, e.soon())
		p.cancel()
	}
	end := time.Now().Add(e.soon())
	for runtime.NumGoroutine() > before && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	if after := runtime.NumGoroutine(); after > before {
		stacks := make([]byte, 16<<10)
		e.Errorf("%d goroutines before, %d after:\n%s", before, after, stacks[:runtime.Stack(stacks, true)])
	}
}

// expectCtxError checks that the caller can tell that its own context ended.
func (e *env) expectCtxError(err error, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("error %v, want one that is %v", err, want)
	}
	if errors.Is(want, context.Canceled) && lockstep.SafeToRetry(err) {
		e.Errorf("SafeToRetry(%v) = true", err)
	}
}
