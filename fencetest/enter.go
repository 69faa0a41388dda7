package fencetest

import (
	"strconv"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

func enterChecks() []check {
	return []check{
		{name: "after a newer holder entered the older is refused, although nothing was written", run: checkEnter},
		{name: "entering an empty resource raises its mark", run: checkEnterEmpty},
		{name: "entering changes no data", run: checkEnterKeeps},
		{name: "a counter with a holder frozen between read and write is exact", run: checkFrozen},
	}
}

func checkEnter(e *env) {
	a, b := e.open(), e.open()
	e.write(a, 6, "by a")
	e.enter(b, 7)
	e.stale(a, 6)
	e.stale(e.open(), 6)
	e.holds(b, "by a")
	e.write(b, 7, "by b")
}

func checkEnterEmpty(e *env) {
	a, b := e.open(), e.open()
	e.enter(b, 7)
	e.empty(b)
	e.stale(a, 6)
	e.empty(b)
}

func checkEnterKeeps(e *env) {
	s := e.open()
	e.write(s, 6, "kept")
	for _, token := range []lockstep.Token{6, 7, 7, 9} {
		e.enter(s, token)
		e.holds(s, "kept")
	}
}

// checkFrozen lets A freeze after its read, B take over, and A wake at each point of B's work.
func checkFrozen(e *env) {
	for _, wake := range []string{"after B entered", "after B read", "after B wrote"} {
		e := e.fresh()
		a, b := e.open(), e.open()
		e.write(a, 5, "100")
		e.enter(a, 6)
		read := e.count(a) // and freezes
		wakes := func(now string) {
			if now == wake {
				e.refused("A's write "+now, a.Write(e.ctx, e.grant(6), decimal(read+1)), fence.ErrStale)
			}
		}
		e.enter(b, 7)
		wakes("after B entered")
		n := e.count(b)
		wakes("after B read")
		e.write(b, 7, strconv.Itoa(n+1))
		wakes("after B wrote")
		e.holds(b, "101")
	}
}

// count reads the value as a number.
func (e *env) count(s Store) int {
	e.Helper()
	text, err := s.Read(e.ctx)
	if err != nil {
		e.Fatalf("read: %v", err)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		e.Fatalf("the counter reads %q", excerpt(string(text)))
	}
	return n
}

func decimal(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }
