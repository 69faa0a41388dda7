package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep/lease/locker"
)

// keyOf stands for a name in notifications, whose length PostgreSQL bounds.
func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// waiters are the claims of one Locker that wait for their next check. It is safe for concurrent
// use.
type waiters struct {
	mu    sync.Mutex
	byKey map[string][]*waiter // longest wait first
}

// A waiter has room for one wake-up.
type waiter struct{ woken chan struct{} }

// join adds a waiter, and returns how many others wait for the name.
func (w *waiters) join(key string) (me *waiter, others int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey == nil {
		w.byKey = map[string][]*waiter{}
	}
	others = len(w.byKey[key])
	me = &waiter{woken: make(chan struct{}, 1)}
	w.byKey[key] = append(w.byKey[key], me)
	return me, others
}

// leave removes a waiter. A wake-up that it has not noticed goes to the next.
func (w *waiters) leave(key string, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := slices.DeleteFunc(w.byKey[key], func(other *waiter) bool { return other == me })
	if len(rest) == 0 {
		delete(w.byKey, key)
		return
	}
	w.byKey[key] = rest
	if len(me.woken) > 0 {
		wakeFirst(rest)
	}
}

// wake lets one waiter check: the lock has become free, and only one can have it.
func (w *waiters) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wakeFirst(w.byKey[key])
}

// wakeAll lets one waiter of each name check.
func (w *waiters) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, waiting := range w.byKey {
		wakeFirst(waiting)
	}
}

// wakeFirst wakes the first waiter not yet woken.
func wakeFirst(waiting []*waiter) {
	for _, one := range waiting {
		select {
		case one.woken <- struct{}{}:
			return
		default:
		}
	}
}

// Wait implements [locker.Waker]. Of several waiters for one name only one needs to check after d:
// the more there are, the longer each one waits, so that together they ask the server as often as
// one would.
func (b *backend) Wait(ctx context.Context, c *locker.Claim, d time.Duration) {
	key := keyOf(c.Names[0])
	me, others := b.waiters.join(key)
	defer b.waiters.leave(key, me)
	if b.cfg.Wake != WakeByPolling {
		b.listener.join()
		defer b.listener.leave()
	}
	// Beyond this the Locker would mistake its own waiting for an unresponsive server.
	longest := max(d, b.cfg.UnavailableAfter/2)
	timer := time.NewTimer(min(d*time.Duration(others+1), longest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-me.woken:
	case <-ctx.Done():
	}
}

// heard handles a notification: a key and the identity of the Locker that has released. A Locker's
// own releases have already woken their waiter.
func (b *backend) heard(payload string) {
	if key, from, ok := strings.Cut(payload, " "); ok && from != b.id {
		b.wake(key)
	}
}

// wake lets one claim check that waits for the name, or for an answer that may be outdated.
func (b *backend) wake(key string) {
	b.flights.age(key)
	b.waiters.wake(key)
}
