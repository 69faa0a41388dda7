package fencetest

import (
	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

func identityChecks() []check {
	return []check{
		{name: "the token of another lock is refused", run: checkOtherLock},
		{name: "the token of another backend is refused", run: checkOtherBackend},
		{name: "zero and absent tokens are refused", run: checkNoToken},
		{name: "a token above the largest is refused and does not close the door", run: checkHugeToken},
		{name: "a deleted resource still belongs to its lock", run: checkForeignAfterDeletion},
	}
}

func checkOtherLock(e *env) {
	g := e.grant(900)
	g.Lock += "-other"
	e.foreign(g)
}

func checkOtherBackend(e *env) {
	g := e.grant(900)
	g.Backend = "fencetest:other"
	e.foreign(g)
}

// foreign checks that a foreign grant is refused with any token, and leaves no trace.
func (e *env) foreign(g fence.Grant) {
	e.Helper()
	s := e.open()
	e.write(s, 7, "ours")
	for _, token := range []lockstep.Token{900, 7, 1} {
		g.Token = token
		e.nothingWith(s, g, fence.ErrForeign)
	}
	e.holds(s, "ours")
	e.write(s, 7, "still ours")
	e.write(s, 8, "as before")
}

func checkNoToken(e *env) {
	fresh := e.open()
	e.nothingWith(fresh, fence.Grant{}, fence.ErrNoToken)
	e.nothingWith(fresh, e.grant(0), fence.ErrNoToken)
	e.empty(fresh)
	e.write(fresh, 7, "x")
	e.nothingWith(fresh, fence.Grant{}, fence.ErrNoToken)
	e.nothingWith(fresh, e.grant(0), fence.ErrNoToken)
	e.holds(fresh, "x")
}

func checkHugeToken(e *env) {
	s := e.open()
	e.write(s, 7, "x")
	e.nothingWith(s, e.grant(lockstep.MaxToken+1), lockstep.ErrInvalid)
	e.nothingWith(s, e.grant(1<<64-1), lockstep.ErrInvalid)
	e.write(s, 7, "y")
	e.holds(s, "y")
}

func checkForeignAfterDeletion(e *env) {
	s := e.open()
	e.write(s, 7, "x")
	e.remove(s, 8)
	g := e.grant(900)
	g.Lock += "-other"
	e.nothingWith(s, g, fence.ErrForeign)
	e.empty(s)
}
