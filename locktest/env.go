package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// An env is what one check works with.
type env struct {
	tb
	t       *testing.T // for the functions of the backend
	backend Backend
	caps    lockstep.Capabilities
	space   string // first segment of the check's names, unique to it
	ctx     context.Context
}

var envs atomic.Int64

func newEnv(report tb, t *testing.T, b Backend, caps lockstep.Capabilities) *env {
	e := &env{
		tb: report, t: t, backend: b, caps: caps,
		space: fmt.Sprintf("locktest-%s-%d", runID, envs.Add(1)),
	}
	ctx, cancel := context.WithTimeout(report.Context(), 4*e.freeBy()+30*time.Second)
	report.Cleanup(cancel)
	e.ctx = ctx
	return e
}

// open returns a new Locker, which is closed when the check ends.
func (e *env) open() lockstep.Locker {
	l := e.backend.New(e.t)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.soon())
		defer cancel()
		if err := l.Close(ctx); err != nil {
			e.Logf("close: %v", err)
		}
	})
	return l
}

// pair returns two Lockers, such as a holder and a rival.
func (e *env) pair() (a, b lockstep.Locker) { return e.open(), e.open() }

// name is a lock name that no other check uses.
func (e *env) name(last string) string { return e.space + "/" + last }

// soon is how long something that should happen at once may take.
func (e *env) soon() time.Duration { return e.backend.Slack + 2*time.Second }

// freeBy is how long a dead holder may block others.
func (e *env) freeBy() time.Duration { return e.caps.TTL + e.caps.Grace + e.backend.Slack }

// limit ends with the check, or well after the longest time that a correct backend could need, so
// that a faulty one cannot hang the suite.
func (e *env) limit() context.Context { return e.ctx }

// acquire takes a lock that is free, or will be after an expiry. It does not rely on Acquire
// returning.
func (e *env) acquire(l lockstep.Locker, name string, opts ...lockstep.AcquireOption) lockstep.Lock {
	e.Helper()
	return e.granted(e.start(l, name, opts...), e.freeBy()+e.soon())
}

func (e *env) release(k lockstep.Lock) {
	e.Helper()
	if err := k.Release(e.limit()); err != nil {
		e.Fatalf("release %s: %v", k.Name(), err)
	}
}

// answer repeats a request that the backend does not answer, which may be due to a busy machine and
// says nothing about the lock. The backend must answer soon.
func (e *env) answer(request func() (lockstep.Lock, error)) (lockstep.Lock, error) {
	for end := time.Now().Add(e.soon()); ; e.sleep(5 * time.Millisecond) {
		lock, err := request()
		silent := errors.Is(err, lockstep.ErrUnavailable) || errors.Is(err, lockstep.ErrUncertain)
		if !silent || time.Now().After(end) {
			return lock, err
		}
	}
}

// try makes one attempt to get the lock, or more while the backend does not answer.
func (e *env) try(l lockstep.Locker, name string, opts ...lockstep.AcquireOption) (lockstep.Lock, error) {
	return e.answer(func() (lockstep.Lock, error) { return lockstep.TryAcquire(e.limit(), l, name, opts...) })
}

// busy checks that the lock is not available now.
func (e *env) busy(l lockstep.Locker, name string, opts ...lockstep.AcquireOption) {
	e.Helper()
	lock, err := e.try(l, name, opts...)
	switch {
	case err == nil:
		e.Errorf("%s was granted with token %d while it should be busy", name, lock.Token())
		lock.Release(e.limit())
	case !errors.Is(err, lockstep.ErrBusy):
		e.Errorf("try of a busy lock: %v, want ErrBusy", err)
	}
}

// free checks that the lock is available at once, or soon if a background clean-up is allowed, and
// releases it.
func (e *env) free(l lockstep.Locker, name string, within time.Duration) {
	e.Helper()
	p := e.start(l, name)
	select {
	case <-p.done:
	case <-time.After(within):
		p.cancel()
		e.Fatalf("%s is not free after %v", name, within)
	}
	if p.err != nil {
		e.Fatalf("%s is not free: %v", name, p.err)
	}
	e.release(p.lock)
}

// A pending is an Acquire that runs in the background.
type pending struct {
	cancel context.CancelFunc
	done   chan struct{}
	lock   lockstep.Lock
	err    error
	at     time.Time
}

// start starts an Acquire.
func (e *env) start(l lockstep.Locker, name string, opts ...lockstep.AcquireOption) *pending {
	ctx, cancel := context.WithCancel(e.limit())
	p := &pending{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.lock, p.err = l.Acquire(ctx, name, opts...)
		p.at = time.Now()
	}()
	return p
}

// queue starts an Acquire and returns when it is the n-th waiter of the name. A backend without a
// queue shows no waiters.
func (e *env) queue(l lockstep.Locker, name string, n int, opts ...lockstep.AcquireOption) *pending {
	e.Helper()
	p := e.start(l, name, opts...)
	inspector, ok := l.(lockstep.Inspector)
	if !ok || !e.caps.FIFO {
		e.sleep(e.backend.Settle)
		return p
	}
	e.until(fmt.Sprintf("%s has %d waiters", name, n), func() bool {
		state, err := inspector.Inspect(e.limit(), name)
		return err == nil && len(state.Waiters) >= n
	})
	return p
}

// granted waits for the lock of a pending Acquire.
func (e *env) granted(p *pending, within time.Duration) lockstep.Lock {
	e.Helper()
	e.ended(p, within)
	if p.err != nil {
		e.Fatalf("waiting acquire: %v", p.err)
	}
	return p.lock
}

func (e *env) ended(p *pending, within time.Duration) {
	e.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		e.Fatalf("acquire has not ended after %v", within)
	}
}

// waiting checks that a pending Acquire has not ended.
func (e *env) waiting(p *pending) {
	e.Helper()
	select {
	case <-p.done:
		e.Fatalf("acquire has ended with lock %v and error %v, it should wait", p.lock != nil, p.err)
	case <-time.After(e.backend.Settle):
	}
}

// until waits for something that should happen soon.
func (e *env) until(what string, holds func() bool) {
	e.Helper()
	for end := time.Now().Add(e.soon()); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("not within %v: %s", e.soon(), what)
		}
	}
}

func (e *env) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-e.Context().Done():
	}
}

// over waits for the lock's context and returns its cause.
func (e *env) over(k lockstep.Lock, within time.Duration) error {
	e.Helper()
	select {
	case <-k.Context().Done():
		return context.Cause(k.Context())
	case <-time.After(within):
		e.Fatalf("the context of %s is not done after %v", k.Name(), within)
		return nil
	}
}

// lost checks that the lock is over for one of the reasons.
func (e *env) lost(k lockstep.Lock, within time.Duration, reasons ...lockstep.LossReason) *lockstep.LossError {
	e.Helper()
	cause := e.over(k, within)
	loss, ok := errors.AsType[*lockstep.LossError](cause)
	if !ok {
		e.Fatalf("the cause of the lost lock is %v, want a LossError", cause)
	}
	for _, r := range reasons {
		if loss.Reason == r {
			return loss
		}
	}
	e.Errorf("lost because of %v, want one of %v", loss.Reason, reasons)
	return loss
}

// held checks that the holder still trusts its lock.
func (e *env) held(k lockstep.Lock) {
	e.Helper()
	if err := k.Check(); err != nil {
		e.Errorf("%s is over: %v", k.Name(), err)
	}
	if k.Context().Err() != nil {
		e.Errorf("the context of %s is done: %v", k.Name(), context.Cause(k.Context()))
	}
}

// cut severs the network of the Locker until heal or the end of the check.
func (e *env) cut(l lockstep.Locker) {
	e.Helper()
	e.backend.Server.Cut(e.t, l)
	e.Cleanup(func() { e.heal(l) })
}

func (e *env) heal(l lockstep.Locker) { e.backend.Server.Heal(e.t, l) }
