package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockstep-dev/lockstep"
)

// flights let one of the waiting claims of a Locker ask for a name at a time; the others learn from
// its answer. A thousand goroutines that want one lock so cost the server what one costs. The zero
// value is ready, and safe for concurrent use.
type flights struct {
	mu    sync.Mutex
	byKey map[string]*flight
}

// A flight is one question under way.
type flight struct {
	done    chan struct{}
	err     error // set before done is closed
	isStale bool  // the lock was released meanwhile, or who asked gave up; read it when done is closed
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

// age says that the answer to the flight under way will not hold: the lock has just become free,
// and the server may have looked at it before, or who asked has given up.
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

// isOutdated reports whether to ask once more, as the answer err may no longer hold. done must be
// closed, or be the caller's to close.
func (one *flight) isOutdated(err error) bool {
	return one.isStale && (errors.Is(err, lockstep.ErrBusy) || errors.Is(err, lockstep.ErrUnavailable))
}

// follow waits for the answer and returns what it means for another claim, of which nothing was
// sent, and whether to ask once more.
func (one *flight) follow(ctx context.Context) (again bool, err error) {
	select {
	case <-one.done:
		err = forOthers(one.err)
		return one.isOutdated(err), err
	case <-ctx.Done():
		return false, fmt.Errorf("%w: %w", lockstep.ErrUnavailable, ctx.Err())
	}
}

// forOthers is what the answer to one claim means for the others.
func forOthers(err error) error {
	switch {
	case err == nil:
		return &lockstep.BusyError{} // the claim that asked has the lock
	case errors.Is(err, lockstep.ErrUncertain):
		return fmt.Errorf("%w: %v", lockstep.ErrUnavailable, err)
	default:
		return err
	}
}
