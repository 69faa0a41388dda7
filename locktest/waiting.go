package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockstep-dev/lockstep"
)

func waitingChecks() []check {
	return []check{
		{name: "a try of a busy lock ends at once and leaves nothing", run: checkTry},
		{name: "a wait is bounded", run: checkWait},
		{name: "a cancelled waiter leaves the queue", run: checkCancel},
		{name: "a context that is done takes nothing", run: checkDeadContext},
		{name: "a lock outlives the context of its acquire and is renewed", run: checkOutlives},
		{name: "a cancel that meets a grant leaves no ghost", run: checkCancelAgainstGrant},
		{name: "waiters are granted in the order of their requests", needs: []need{claims(fifo)}, run: checkFIFO},
	}
}

func checkTry(e *env) {
	a, b := e.pair()
	held := e.acquire(a, e.name("x"))
	e.busy(b, e.name("x"))
	e.busy(a, e.name("x")) // claims of one Locker also exclude each other
	e.release(held)
	e.free(a, e.name("x"), e.soon())
}

func checkWait(e *env) {
	a, b := e.pair()
	held := e.acquire(a, e.name("x"))
	const wait = 300 * time.Millisecond
	var took time.Duration
	_, err := e.answer(func() (lockstep.Lock, error) {
		begin := time.Now()
		lock, err := b.Acquire(e.limit(), e.name("x"), lockstep.WithWait(wait))
		took = time.Since(begin)
		return lock, err
	})
	if !errors.Is(err, lockstep.ErrBusy) || !lockstep.SafeToRetry(err) {
		e.Errorf("acquire: %v, want ErrBusy", err)
	}
	if took < wait || took > wait+e.soon() {
		e.Errorf("a wait of %v took %v", wait, took)
	}
	e.release(held)
	e.free(a, e.name("x"), e.soon())
}

func checkCancel(e *env) {
	a, b := e.pair()
	held := e.acquire(a, e.name("x"))
	gone := e.queue(b, e.name("x"), 1)
	stays := e.queue(a, e.name("x"), 2)
	gone.cancel()
	e.ended(gone, e.soon())
	e.expectCtxError(gone.err, context.Canceled)
	e.waiting(stays)
	e.release(held)
	e.release(e.granted(stays, e.soon()))
}

func checkDeadContext(e *env) {
	l := e.open()
	ctx, cancel := context.WithCancel(e.limit())
	cancel()
	if _, err := l.Acquire(ctx, e.name("x")); !errors.Is(err, context.Canceled) {
		e.Errorf("acquire: %v, want context.Canceled", err)
	}
	e.free(l, e.name("x"), e.soon())
}

func checkOutlives(e *env) {
	a, b := e.pair()
	ctx, cancel := context.WithCancel(e.limit())
	held, err := a.Acquire(ctx, e.name("x"))
	cancel()
	if err != nil {
		e.Fatalf("acquire: %v", err)
	}
	for end := time.Now().Add(5 * e.caps.TTL / 2); time.Now().Before(end); e.sleep(e.caps.TTL / 4) {
		e.held(held)
		if left := held.Remaining(); left <= 0 || left > e.caps.TTL {
			e.Errorf("%v remain of a lease of %v", left, e.caps.TTL)
		}
	}
	e.busy(b, e.name("x"))
	e.release(held)
}

// checkCancelAgainstGrant cancels around the time the lock becomes free: each Acquire ends with a
// lock or without one, never with a claim that no one knows about.
func checkCancelAgainstGrant(e *env) {
	a, b := e.pair()
	name := e.name("x")
	for i := range 90 {
		held := e.acquire(a, name)
		p := e.start(b, name)
		e.sleep(time.Duration(rand.Int64N(int64(3 * time.Millisecond))))
		switch i % 3 { // cancel before, during and after the release
		case 0:
			p.cancel()
		case 1:
			go p.cancel()
		default:
			time.AfterFunc(time.Duration(rand.Int64N(int64(time.Millisecond))), p.cancel)
		}
		e.release(held)
		e.ended(p, e.soon())
		if p.err == nil {
			e.release(p.lock)
			continue
		}
		e.expectCtxError(p.err, context.Canceled)
	}
	e.free(a, name, e.freeBy())
	e.free(b, name, e.soon())
}

func checkFIFO(e *env) {
	lockers := []lockstep.Locker{e.open(), e.open(), e.open()}
	held := e.acquire(lockers[0], e.name("x"))
	var queue []*pending
	for i := range 6 {
		queue = append(queue, e.queue(lockers[i%3], e.name("x"), i+1))
	}
	e.busy(lockers[1], e.name("x"))
	e.release(held)
	for i, p := range queue {
		lock := e.granted(p, e.soon())
		for _, later := range queue[i+1:] {
			select {
			case <-later.done:
				e.Fatalf("a later waiter was granted while waiter %d holds the lock", i+1)
			default:
			}
		}
		e.release(lock)
	}
}
