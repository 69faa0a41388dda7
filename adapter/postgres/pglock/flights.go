package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockstep-dev/lockstep"
)

// flights let one of the waiting claims of a Locker ask for a name at a time; the others learn from its answer. A thousand goroutines that
// want one lock so cost the server what one costs. The zero value is ready, and safe for concurrent use.
type flights struct {
	mu    sync.Mutex
	byKey map[string]*flight
}

// A flight is one question under way.
type flight struct {
	done    chan struct{}
	err     error // set before done is closed
	isStale bool  // the lock was released meanwhile; read it when done is closed
}

// join begins a flight, or finds the one that is under way.
func (f *flights) join(key string) (one *flight, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.byKey[key]; one != nil {
		return one, false
	}
	if f.byKey == nil {
		f.byKey = map[string]*flight{}
	}
	one = &flight{done: make(chan struct{})}
	f.byKey[key] = one
	return one, true
}

// age says that the lock has just become free: the server may have looked at it before.
func (f *flights) age(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.byKey[key]; one != nil {
		one.isStale = true
	}
}

// land ends a flight with the error of its Take.
func (f *flights) land(key string, one *flight, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byKey, key)
	one.err = err
	close(one.done)
}

// isOutdated reports whether the answer was busy, and may be no more.
func (one *flight) isOutdated(err error) bool {
	return errors.Is(err, lockstep.ErrBusy) && one.isStale
}

// follow waits for the answer and returns what it means for another claim, of which nothing was sent.
func (one *flight) follow(ctx context.Context) error {
	select {
	case <-one.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, ctx.Err())
	}
	switch {
	case one.err == nil:
		return &lockstep.BusyError{} // the claim that asked has the lock
	case errors.Is(one.err, lockstep.ErrUncertain):
		return fmt.Errorf("%w: %v", lockstep.ErrUnavailable, one.err)
	default:
		return one.err
	}
}
