package locktest

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/lockstep-dev/lockstep"
)

func observerChecks() []check {
	return []check{
		{name: "inspect tells who holds and who waits", needs: []need{implements[lockstep.Inspector]}, run: checkInspect},
		{name: "a busy error tells who is in the way", needs: []need{implements[lockstep.Inspector]}, run: checkBusyError},
		{name: "watch yields each state", needs: []need{implements[lockstep.Watcher]}, run: checkWatch},
		{name: "a detached lock can be attached elsewhere", needs: []need{implements[lockstep.Detacher]}, run: checkDetach},
		{name: "a detached lock ends with its lease", needs: []need{implements[lockstep.Detacher]}, run: checkDetachedExpiry},
	}
}

func (e *env) inspect(l lockstep.Locker, name string) lockstep.State {
	e.Helper()
	state, err := l.(lockstep.Inspector).Inspect(e.limit(), name)
	if err != nil {
		e.Fatalf("inspect %s: %v", name, err)
	}
	if state.Name != name {
		e.Errorf("state of %q, asked for %q", state.Name, name)
	}
	return state
}

func checkInspect(e *env) {
	a, b := e.pair()
	name := e.name("x")
	if s := e.inspect(a, name); len(s.Holders) != 0 || len(s.Waiters) != 0 {
		e.Errorf("a lock that nobody has: %+v", s)
	}
	if err := lockstep.Ping(e.limit(), a); err != nil {
		e.Errorf("ping: %v", err)
	}
	labels := map[string]string{"host": "h1", "purpose": "a \"test\" с ключом"}
	begin := time.Now()
	lock := e.acquire(a, name, lockstep.WithMetadata(labels))
	waits := e.queue(b, name, 1, lockstep.WithMetadata(map[string]string{"n": "1"}))
	s := e.inspect(b, name)
	wantWaiters := 0
	if e.caps.FIFO { // without a queue no waiters are visible
		wantWaiters = 1
	}
	if len(s.Holders) != 1 || len(s.Waiters) != wantWaiters {
		e.Fatalf("%d holders and %d waiters, want 1 and %d", len(s.Holders), len(s.Waiters), wantWaiters)
	}
	holder := s.Holders[0]
	shown := maps.Clone(holder.Metadata)
	maps.DeleteFunc(shown, func(key, _ string) bool { return labels[key] == "" }) // a backend may add its own
	if !maps.Equal(shown, labels) || holder.Token != lock.Token() || holder.Owner == "" {
		e.Errorf("holder %+v, want token %d and %v", holder, lock.Token(), labels)
	}
	for _, waiter := range s.Waiters {
		if waiter.Metadata["n"] != "1" || waiter.Token != 0 || waiter.Owner == "" || waiter.Owner == holder.Owner {
			e.Errorf("waiter %+v behind holder %+v", waiter, holder)
		}
	}
	if age := holder.Since.Sub(begin); age < -time.Minute || age > time.Minute {
		e.Errorf("since %v, it is %v", holder.Since, begin)
	}
	if e.caps.Fenced && s.NextToken != 0 && s.NextToken <= lock.Token() {
		e.Errorf("next token %d, the holder has %d", s.NextToken, lock.Token())
	}
	e.release(lock)
	e.release(e.granted(waits, e.soon()))
	e.until("nobody holds it", func() bool { return len(e.inspect(a, name).Holders) == 0 })
}

func checkBusyError(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"), lockstep.WithMetadata(map[string]string{"host": "h1"}))
	_, err := e.try(b, e.name("x"))
	busy, ok := errors.AsType[*lockstep.BusyError](err)
	if !ok {
		e.Fatalf("error %v, want a BusyError", err)
	}
	if len(busy.Holders) != 1 || busy.Holders[0].Token != lock.Token() || busy.Holders[0].Metadata["host"] != "h1" {
		e.Errorf("holders %+v", busy.Holders)
	}
	e.release(lock)
}

func checkWatch(e *env) {
	a, b := e.pair()
	ctx, cancel := context.WithCancel(e.limit())
	defer cancel()
	var lock lockstep.Lock
	seen := 0
	for s, err := range b.(lockstep.Watcher).Watch(ctx, e.name("x")) {
		if err != nil {
			e.Fatalf("watch: %v", err)
		}
		switch {
		case seen == 0 && len(s.Holders) == 0:
			lock = e.acquire(a, e.name("x"))
			seen = 1
		case seen == 1 && len(s.Holders) == 1:
			if s.Holders[0].Token != lock.Token() {
				e.Errorf("watch shows token %d, want %d", s.Holders[0].Token, lock.Token())
			}
			e.release(lock)
			seen = 2
		case seen == 2 && len(s.Holders) == 0:
			seen = 3
			cancel()
		}
	}
	if seen != 3 {
		e.Errorf("watch ended after %d of 3 states", seen)
	}
}

func checkDetach(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	handle, err := a.(lockstep.Detacher).Detach(e.limit(), lock)
	if err != nil {
		e.Fatalf("detach: %v", err)
	}
	if cause := e.over(lock, e.soon()); !errors.Is(cause, lockstep.ErrDetached) {
		e.Errorf("cause %v, want ErrDetached", cause)
	}
	if err := a.Close(e.limit()); err != nil {
		e.Errorf("close: %v", err)
	}
	e.busy(b, e.name("x"))
	again, err := b.(lockstep.Detacher).Attach(e.limit(), handle)
	if err != nil {
		e.Fatalf("attach: %v", err)
	}
	if again.Token() != lock.Token() || again.Name() != lock.Name() {
		e.Errorf("attached %s with token %d, want %s with %d", again.Name(), again.Token(), lock.Name(), lock.Token())
	}
	e.sleep(3 * e.caps.TTL / 2)
	e.held(again)
	e.release(again)
	e.free(b, e.name("x"), e.soon())
}

func checkDetachedExpiry(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	handle, err := a.(lockstep.Detacher).Detach(e.limit(), lock)
	if err != nil {
		e.Fatalf("detach: %v", err)
	}
	next := e.acquire(b, e.name("x"))
	if _, err := b.(lockstep.Detacher).Attach(e.limit(), handle); !errors.Is(err, lockstep.ErrLost) {
		e.Errorf("attach after the lease: %v, want ErrLost", err)
	}
	e.held(next)
	e.release(next)
}
