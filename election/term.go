package election

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// A term is one grant of the lock and the context of the body that runs under it.
type term struct {
	lock       lockstep.Lock
	validity   time.Duration // of the lease right after a renewal
	stepDownAt time.Duration // what remains of the lease when the term ends
	began      time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc
	watch  sync.WaitGroup

	mu struct {
		sync.Mutex
		overSince time.Time // when the watch saw the end; zero before
	}
}

// newTerm starts a term. Its watch runs until stop.
func newTerm(ctx context.Context, lock lockstep.Lock, ttl, renewDeadline time.Duration) *term {
	t := &term{
		lock:       lock,
		validity:   longestDeadline(ttl),
		stepDownAt: longestDeadline(ttl) - renewDeadline,
		began:      time.Now(),
	}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.watch.Go(t.follow)
	return t
}

// stop ends the watch, and the term if nothing else has ended it.
func (t *term) stop() {
	t.cancel(context.Canceled)
	t.watch.Wait()
}

// follow ends the term when the lock is over or was not renewed in time, and records when the term
// ended, whatever the reason.
func (t *term) follow() {
	timer := time.NewTimer(t.untilNextLook())
	defer timer.Stop()
	for t.cause() == nil {
		select {
		case <-t.ctx.Done():
		case <-t.lock.Context().Done():
		case <-timer.C:
			timer.Reset(t.untilNextLook())
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.overSince = time.Now()
}

// untilNextLook is bounded because timers stop while the machine is suspended.
func (t *term) untilNextLook() time.Duration {
	return max(min(t.lock.Remaining()-t.stepDownAt, lease.WatchEvery), 0)
}

// cause returns why the term is over, or nil. It checks the lock now and ends the term if the lock
// is over or was not renewed in time.
func (t *term) cause() error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	if loss := t.lock.Check(); loss != nil {
		t.cancel(loss)
	} else if t.lock.Remaining() <= t.stepDownAt {
		t.cancel(ErrNotRenewed)
	}
	return context.Cause(t.ctx)
}

func (t *term) vitals() vitals {
	v := vitals{cause: t.cause(), unrenewed: t.validity - t.lock.Remaining()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.overSince.IsZero() {
		v.overFor = time.Since(t.mu.overSince)
	}
	return v
}

// A bodyContext is the context of the body. The watch learns of a loss from goroutines and timers,
// which can be late; a caller that asks just before a write needs the current state.
type bodyContext struct {
	context.Context
	term *term
}

func (c bodyContext) Err() error {
	c.term.cause() // ends the context if the term is over
	return c.Context.Err()
}
