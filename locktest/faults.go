package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-dev/lockstep"
)

func faultChecks() []check {
	return []check{
		{name: "a holder that is cut off knows before the next is granted", needs: []need{canCut}, run: checkLossInTime},
		{name: "a short outage loses nothing", needs: []need{canCut}, run: checkShortOutage},
		{name: "a locker works again after a long outage", needs: []need{canCut}, run: checkLongOutage},
		{name: "a waiter lives through a long outage of its own", needs: []need{canCut}, run: checkWaiterOutage},
		{name: "a dead waiter blocks the queue no longer than its lease", needs: []need{canCut}, run: checkDeadWaiter},
		{name: "a dead shared holder is not kept alive by the others", needs: []need{canCut, claims(shared)}, run: checkDeadReader},
		{name: "an acquire ends while the backend is away", needs: []need{canCut}, run: checkBoundedAcquire},
		{name: "a release that cannot be sent is uncertain and undone later", needs: []need{canCut}, run: checkUncertainRelease},
		{name: "a late release touches nobody else's lock", needs: []need{canCut}, run: checkLateRelease},
		{name: "a deleted record is a loss and tokens go on rising", needs: []need{canDelete}, run: checkDelete},
		{name: "a revoked holder is told who did it", needs: []need{canRevoke}, run: checkRevoke},
		{name: "tokens rise across a restart", needs: []need{canRestart, claims(fenced)}, alone: true, run: checkRestartTokens},
		{name: "a restart loses no lock", needs: []need{canRestart, claims(survivesFailover)}, alone: true, run: checkRestartHolds},
	}
}

func checkLossInTime(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	next := e.queue(b, e.name("x"), 1)
	e.cut(a)
	cutAt := time.Now()
	e.sleep(e.caps.TTL - time.Since(cutAt))
	if err := lock.Check(); !errors.Is(err, lockstep.ErrLost) { // it reads the clock, so no scheduler can be late
		e.Errorf("check a TTL after the last renewal: %v, want ErrLost", err)
	}
	if left := lock.Remaining(); left != 0 {
		e.Errorf("%v remain a TTL after the last renewal", left)
	}
	after := e.granted(next, e.freeBy())
	if lock.Context().Err() == nil {
		e.Errorf("the next is granted while the context of the last holder is not done")
	}
	if took := next.at.Sub(cutAt); took > e.freeBy() {
		e.Errorf("granted %v after the cut, want at most %v", took, e.freeBy())
	}
	e.lost(lock, e.soon(), lockstep.LeaseEnded)
	if e.caps.Fenced {
		e.rising([]lockstep.Token{lock.Token(), after.Token()})
	}
	e.release(after)
}

func checkShortOutage(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	for range 3 {
		e.sleep(e.caps.TTL / 2) // renewed by now, however slow the last outage was healed
		e.cut(a)
		e.sleep(e.caps.TTL / 4)
		e.heal(a)
	}
	e.sleep(e.caps.TTL)
	e.held(lock)
	e.busy(b, e.name("x"))
	e.release(lock)
}

func checkLongOutage(e *env) {
	a := e.open()
	lost := e.acquire(a, e.name("x"))
	e.cut(a)
	e.sleep(3 * e.caps.TTL / 2)
	e.heal(a)
	e.lost(lost, e.soon(), lockstep.LeaseEnded)
	again := e.acquire(a, e.name("x"))
	e.sleep(2 * e.caps.TTL) // it must have been renewed like the first one
	e.held(again)
	if err := lost.Check(); !errors.Is(err, lockstep.ErrLost) {
		e.Errorf("the lost lock came back to life: %v", err)
	}
	e.release(again)
}

func checkWaiterOutage(e *env) {
	a, b := e.pair()
	held := e.acquire(a, e.name("x"))
	next := e.queue(b, e.name("x"), 1)
	e.cut(b)
	e.sleep(e.caps.TTL + e.caps.Grace + time.Second)
	e.heal(b)
	e.waiting(next)
	e.release(held)
	lock := e.granted(next, e.freeBy())
	e.held(lock)
	e.release(lock)
}

func checkDeadWaiter(e *env) {
	a, b := e.pair()
	held := e.acquire(a, e.name("x"))
	dead := e.queue(b, e.name("x"), 1)
	alive := e.queue(a, e.name("x"), 2)
	e.cut(b)
	e.release(held)
	e.release(e.granted(alive, e.freeBy()))
	select {
	case <-dead.done:
		e.Errorf("a waiter that is cut off was answered: %v", dead.err)
	default:
	}
}

// checkDeadReader lets another reader of the same name arrive, be renewed and leave after the first
// one has died: liveness belongs to the holder, not to the name.
func checkDeadReader(e *env) {
	a, b := e.pair()
	dead := e.acquire(a, e.name("x"), lockstep.WithShared())
	e.cut(a)
	cutAt := time.Now()
	alive := e.acquire(b, e.name("x"), lockstep.WithShared())
	e.lost(dead, e.caps.TTL+e.soon(), lockstep.LeaseEnded)
	e.sleep(e.freeBy() - time.Since(cutAt))
	e.held(alive)
	e.release(alive)
	e.free(b, e.name("x"), e.soon())
}

func checkBoundedAcquire(e *env) {
	l := e.open()
	e.release(e.acquire(l, e.name("warm")))
	e.cut(l)
	ctx, cancel := context.WithTimeout(e.limit(), 500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := l.Acquire(ctx, e.name("x"))
	e.expectCtxError(err, context.DeadlineExceeded)
	if took := time.Since(begin); took > e.soon() {
		e.Errorf("a context of 500ms took %v", took)
	}
	begin = time.Now()
	_, err = lockstep.TryAcquire(e.limit(), l, e.name("x"))
	if !errors.Is(err, lockstep.ErrUnavailable) && !errors.Is(err, lockstep.ErrUncertain) {
		e.Errorf("a try: %v, want ErrUnavailable or ErrUncertain", err)
	}
	if took := time.Since(begin); took > e.freeBy()+e.soon() {
		e.Errorf("a try took %v", took)
	}
	e.heal(l)
	e.free(l, e.name("x"), e.freeBy())
}

func checkUncertainRelease(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	next := e.queue(b, e.name("x"), 1)
	e.cut(a)
	ctx, cancel := context.WithTimeout(e.limit(), 200*time.Millisecond)
	defer cancel()
	if err := lock.Release(ctx); !errors.Is(err, lockstep.ErrUncertain) || lockstep.SafeToRetry(err) {
		e.Errorf("release that cannot be sent: %v, want ErrUncertain", err)
	}
	if err := lock.Check(); !errors.Is(err, lockstep.ErrReleased) {
		e.Errorf("check: %v, want ErrReleased", err)
	}
	e.heal(a)
	if err := lock.Release(e.limit()); err != nil {
		e.Errorf("release when healed: %v", err)
	}
	e.release(e.granted(next, e.soon()))
}

func checkLateRelease(e *env) {
	a, b := e.pair()
	late := e.acquire(a, e.name("x"))
	next := e.queue(b, e.name("x"), 1)
	e.cut(a)
	lock := e.granted(next, e.freeBy())
	e.heal(a)
	if err := late.Release(e.limit()); !errors.Is(err, lockstep.ErrLost) {
		e.Errorf("release of a lost lock: %v, want ErrLost", err)
	}
	e.sleep(e.caps.TTL)
	e.held(lock)
	e.busy(a, e.name("x"))
	e.release(lock)
}

func checkDelete(e *env) {
	a, b := e.pair()
	before := e.acquire(a, e.name("x"))
	e.backend.Server.Delete(e.t, e.name("x"))
	e.lost(before, e.caps.TTL+e.soon(), lockstep.RecordMissing, lockstep.LeaseEnded, lockstep.SessionExpired)
	after := e.acquire(b, e.name("x"))
	if e.caps.Fenced {
		e.rising([]lockstep.Token{before.Token(), after.Token()})
	}
	e.release(after)
	e.backend.Server.Delete(e.t, e.name("x"))
	again := e.acquire(a, e.name("x"))
	if e.caps.Fenced {
		e.rising([]lockstep.Token{after.Token(), again.Token()})
	}
	e.release(again)
}

func checkRevoke(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	next := e.queue(b, e.name("x"), 1)
	e.backend.Server.Revoke(e.t, e.name("x"), "alice")
	if loss := e.lost(lock, e.caps.TTL+e.soon(), lockstep.Revoked); loss.By != "alice" {
		e.Errorf("revoked by %q, want alice", loss.By)
	}
	if err := lock.Release(e.limit()); !errors.Is(err, lockstep.ErrLost) {
		e.Errorf("release: %v, want ErrLost", err)
	}
	after := e.granted(next, e.freeBy())
	if e.caps.Fenced {
		e.rising([]lockstep.Token{lock.Token(), after.Token()})
	}
	e.release(after)
}

func checkRestartTokens(e *env) {
	a := e.open()
	before := e.acquire(a, e.name("x"))
	e.release(before)
	e.backend.Server.Restart(e.t)
	after := e.acquire(a, e.name("x"))
	e.rising([]lockstep.Token{before.Token(), after.Token()})
	e.release(after)
}

func checkRestartHolds(e *env) {
	a, b := e.pair()
	lock := e.acquire(a, e.name("x"))
	e.backend.Server.Restart(e.t)
	other, err := e.try(b, e.name("x"))
	// A restart longer than the lease rightly ends it, even just before the try.
	if lock.Check() == nil && !errors.Is(err, lockstep.ErrBusy) {
		e.Errorf("try of a lock that was held all the time: %v, want ErrBusy", err)
	}
	if err == nil {
		e.release(other)
	}
	lock.Release(e.limit())
	e.free(b, e.name("x"), e.freeBy())
}
