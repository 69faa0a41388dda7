package redislock

import (
	"context"
	"errors"
	"sync"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A flight is a take in progress, with its answer for others who want the same lock.
type flight struct {
	done chan struct{} // closed when the rest is set
	busy error         // the lock is held by another, or now by this take
	err  error         // the take failed
}

// flights allows one take at a time for each lock. Otherwise many goroutines that want one lock
// could keep a slow server from answering anyone.
type flights struct {
	mu    sync.Mutex
	under map[string]*flight
}

// join returns the flight in progress for the key, or starts one.
func (f *flights) join(key string) (fl *flight, lead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl = f.under[key]; fl != nil {
		return fl, false
	}
	fl = &flight{done: make(chan struct{})}
	f.under[key] = fl
	return fl, true
}

func (f *flights) land(key string, fl *flight, busy, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.under, key)
	fl.busy, fl.err = busy, err
	close(fl.done)
}

// takeInTurn takes the lock, or learns from the take of another goroutine of this Locker that it is
// busy. Only a take that started after the call counts: an earlier one may have been sent before
// the lock became free.
func (b *backend) takeInTurn(ctx context.Context, c *locker.Claim, k keys) (locker.Grant, error) {
	for fresh := false; ; fresh = true {
		fl, lead := b.flights.join(k.record)
		if lead {
			return b.fly(ctx, c, k, fl)
		}
		select {
		case <-fl.done:
		case <-ctx.Done():
			return locker.Grant{}, notSent(ctx.Err())
		}
		switch {
		case !fresh, isContextError(fl.err): // its caller gave up, which says nothing about the lock
		case fl.busy != nil:
			return locker.Grant{}, fl.busy
		default:
			return locker.Grant{}, notSent(fl.err)
		}
	}
}

// fly runs the take of a flight.
func (b *backend) fly(ctx context.Context, c *locker.Claim, k keys, fl *flight) (locker.Grant, error) {
	g, err := b.takeNow(ctx, c, k)
	switch {
	case err == nil:
		b.flights.land(k.record, fl, &lockstep.BusyError{Holders: []lockstep.Claim{b.holding(c, g)}}, nil)
	case errors.Is(err, lockstep.ErrBusy):
		b.flights.land(k.record, fl, err, nil)
	default:
		b.flights.land(k.record, fl, nil, err)
	}
	return g, err
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
