package fencetest

import (
	"errors"

	"github.com/lockstep-dev/lockstep/fence"
)

func faultChecks() []check {
	return []check{
		{name: "a crash between check and write loses nothing", needs: []need{canCrash}, run: checkCrash},
		{name: "once: a crash between check and write can be repeated", needs: []need{canCrash, writesOnce}, run: checkCrashOnce},
		{name: "a lost reply and its retry count once", run: checkLostReply},
		{name: "once: a lost reply and its retry count once", needs: []need{writesOnce}, run: checkLostReplyOnce},
		{name: "the mark survives a restart", needs: []need{canRestart}, run: checkRestart},
	}
}

// checkCrash lets a writer die at each moment. Afterwards the value is the old or the new one,
// complete; the same grant and a later one can continue, and an older one cannot.
func checkCrash(e *env) {
	for _, c := range e.guard.Crashes {
		for _, entered := range []bool{false, true} {
			e.afterCrash(c, entered, func(e *env, s Store) {
				e.write(s, 7, "repeated")
				e.holds(s, "repeated")
				e.stale(s, 6)
			})
			e.afterCrash(c, entered, func(e *env, s Store) {
				e.enter(s, 8)
				e.stale(s, 7)
				before, _ := s.Read(e.ctx)
				e.holds(s, string(before))
				e.write(s, 8, "by the next")
				e.stale(s, 7)
				e.holds(s, "by the next")
			})
			e.afterCrash(c, entered, func(e *env, s Store) {
				e.remove(s, 7)
				e.empty(s)
				e.stale(s, 6)
			})
		}
	}
}

// afterCrash calls f with a resource where a writer with token 7 died.
func (e *env) afterCrash(c Crash, entered bool, f func(*env, Store)) {
	e = e.fresh()
	e.write(e.open(), 6, "old")
	if entered {
		e.enter(e.open(), 7)
	}
	c.Write(e.t, e.open(), e.grant(7), []byte("new"))
	s := e.open()
	value, err := s.Read(e.ctx)
	if text := string(value); err != nil || text != "old" && text != "new" {
		e.Errorf("after a crash (%s) the value is %q, %v, want the old or the new one", c.Moment, excerpt(text), err)
	}
	if entered || string(value) == "new" {
		e.stale(s, 6)
		e.holds(s, string(value))
	}
	f(e, s)
}

// checkCrashOnce checks that once-only work gets done and is not mistaken for done: the retry
// either writes, or learns that the write took effect, and it did.
func checkCrashOnce(e *env) {
	for _, c := range e.guard.Crashes {
		e.afterCrash(c, false, func(e *env, s Store) {
			err := s.(OnceStore).WriteOnce(e.ctx, e.grant(7), []byte("new"))
			if err != nil && !errors.Is(err, fence.ErrAlready) {
				e.Errorf("the retry after a crash (%s): %v, want nil or ErrAlready", c.Moment, err)
			}
			e.holds(s, "new")
			e.refused("the second retry", s.(OnceStore).WriteOnce(e.ctx, e.grant(7), []byte("newer")), fence.ErrAlready)
			e.holds(s, "new")
		})
	}
}

// loseReply makes the next reply get lost, if the guard's test supports it.
func (e *env) loseReply(s Store) {
	if e.guard.LoseReply != nil {
		e.guard.LoseReply(e.t, s)
	}
}

// checkLostReply lets A write without receiving the reply. Its retry may write again as long as no
// one else has written in between.
func checkLostReply(e *env) {
	a, b := e.open(), e.open()
	e.write(a, 6, "0")
	e.enter(a, 7)
	e.loseReply(a)
	a.Write(e.ctx, e.grant(7), []byte("1")) // its reply is lost
	e.write(a, 7, "1")
	e.holds(b, "1")

	e.loseReply(a)
	a.Write(e.ctx, e.grant(7), []byte("2"))
	e.enter(b, 8)
	e.write(b, 8, string(decimal(e.count(b)+1)))
	e.refused("A's retry after B's write", a.Write(e.ctx, e.grant(7), []byte("2")), fence.ErrStale)
	e.holds(b, "3")
}

func checkLostReplyOnce(e *env) {
	a := e.openOnce()
	e.once(a, 6, "0")
	e.loseReply(a)
	a.WriteOnce(e.ctx, e.grant(7), []byte("1"))
	if err := a.WriteOnce(e.ctx, e.grant(7), []byte("again")); !errors.Is(err, fence.ErrAlready) {
		e.Errorf("the retry: %v, want ErrAlready", err)
	}
	e.holds(a, "1")
	e.once(a, 8, "2")
	e.holds(a, "2")
}

func checkRestart(e *env) {
	e.write(e.open(), 6, "old")
	e.enter(e.open(), 7)
	deleted := e.fresh()
	deleted.remove(deleted.open(), 7)
	e.guard.Restart(e.t)
	s := e.open()
	e.stale(s, 6)
	e.holds(s, "old")
	e.write(s, 7, "new")
	gone := deleted.open()
	deleted.stale(gone, 6)
	deleted.empty(gone)
}
