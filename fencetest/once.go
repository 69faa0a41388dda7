package fencetest

import (
	"sync/atomic"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

func onceChecks() []check {
	return []check{
		{name: "once: a grant writes once, and its retry learns that it has", needs: []need{writesOnce}, run: checkOnce},
		{name: "once: an older token is stale, a newer one writes", needs: []need{writesOnce}, run: checkOnceOrder},
		{name: "once: entering is no write", needs: []need{writesOnce}, run: checkOnceEnter},
		{name: "once: of many attempts at the same time one succeeds", needs: []need{writesOnce}, run: checkOnceTogether},
	}
}

func (e *env) openOnce() OnceStore { return e.open().(OnceStore) }

func (e *env) once(s OnceStore, token lockstep.Token, value string) {
	e.Helper()
	if err := s.WriteOnce(e.ctx, e.grant(token), []byte(value)); err != nil {
		e.Fatalf("write once with token %d: %v", token, err)
	}
}

func checkOnce(e *env) {
	s := e.openOnce()
	e.once(s, 7, "first")
	for range 2 {
		e.refused("the retry", s.WriteOnce(e.ctx, e.grant(7), []byte("second")), fence.ErrAlready)
		e.refused("the retry of another client", e.openOnce().WriteOnce(e.ctx, e.grant(7), []byte("third")), fence.ErrAlready)
	}
	e.holds(s, "first")
}

func checkOnceOrder(e *env) {
	s := e.openOnce()
	e.once(s, 7, "first")
	e.once(s, 9, "second")
	for _, token := range []lockstep.Token{8, 7} { // 8 never wrote, and what 7 wrote is gone
		e.refused("write once with an older token", s.WriteOnce(e.ctx, e.grant(token), []byte("late")), fence.ErrStale)
		e.stale(s, token)
	}
	e.holds(s, "second")
	e.once(s, 10, "third")
	e.holds(s, "third")
}

func checkOnceEnter(e *env) {
	s := e.openOnce()
	e.once(s, 6, "first")
	e.enter(s, 7)
	e.once(s, 7, "second")
	e.enter(s, 7)
	e.refused("the retry", s.WriteOnce(e.ctx, e.grant(7), []byte("third")), fence.ErrAlready)
	e.enter(s, 8)
	e.refused("the retry after the next holder entered", s.WriteOnce(e.ctx, e.grant(7), []byte("third")), fence.ErrAlready)
	e.holds(s, "second")
}

func checkOnceTogether(e *env) {
	for token := range lockstep.Token(e.guard.Rounds) {
		var wrote atomic.Int64
		together(e.guard.Writers, func(int) {
			switch err := e.openOnce().WriteOnce(e.ctx, e.grant(token+1), []byte("x")); {
			case err == nil:
				wrote.Add(1)
			default:
				e.refused("one of many attempts", err, fence.ErrAlready)
			}
		})
		if n := wrote.Load(); n != 1 {
			e.Fatalf("token %d wrote %d times in %d attempts, want once", token+1, n, e.guard.Writers)
		}
	}
}
