package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockstep-dev/lockstep"
)

// flights lets one of a Locker's waiting claims ask for a name at a time; the others learn from its
// answer. So a thousand goroutines that want one lock cost the server no more than one. The zero
// value is ready for use, and safe for concurrent use.
type flights struct {
	mu    sync.Mutex
	byKey map[string]*flight
}

// A flight is one request in progress.
type flight struct {
	done chan struct{}
	err  error // set before done is closed
	// isStale is set when the lock was released in the meantime or the claim that asked gave up.
	// Read it once done is closed.
	isStale bool
}

// join starts a flight, or finds the one in progress.
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

// age marks the answer of the flight in progress as outdated: the lock has just become free and the
// server may have read it before, or the claim that asked has given up.
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

// isOutdated reports whether to ask again because the answer err may be outdated. done must be
// closed, or the caller must be the one to close it.
func (one *flight) isOutdated(err error) bool {
	return one.isStale && (errors.Is(err, lockstep.ErrBusy) || errors.Is(err, lockstep.ErrUnavailable))
}

// follow waits for the answer and returns what it means for another claim, for which nothing was
// sent, and whether to ask again.
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
