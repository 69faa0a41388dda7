package fencetest

import (
	"errors"
	"strings"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

func orderChecks() []check {
	return []check{
		{name: "what is written is read, and nothing is there before", run: checkReadBack},
		{name: "a grant writes as often as it likes", run: checkEqual},
		{name: "an older token is refused and changes nothing", run: checkOlder},
		{name: "a refusal carries both tokens", run: checkBothTokens},
		{name: "tokens are compared as whole numbers", run: checkNumbers},
		{name: "another client sees the mark", run: checkOtherClient},
		{name: "resources have marks of their own", run: checkResources},
		{name: "equal bytes written twice do not reopen the door", run: checkEqualBytes},
		{name: "deletion does not forget the token", run: checkDeletion},
		{name: "deleting what is not there raises the mark", run: checkEmptyDeletion},
	}
}

func checkReadBack(e *env) {
	s := e.open()
	e.empty(s)
	for i, value := range []string{"a", "", "\x00\xff\n", strings.Repeat("long ", 64*1024/5)} {
		e.write(s, lockstep.Token(i+1), value)
		e.holds(s, value)
		e.holds(e.open(), value)
	}
}

func checkEqual(e *env) {
	s := e.open()
	for _, value := range []string{"a", "b", "b", "c"} {
		e.write(s, 7, value)
		e.enter(s, 7)
		e.holds(s, value)
	}
}

func checkOlder(e *env) {
	s := e.open()
	e.write(s, 6, "old")
	e.write(s, 7, "new")
	e.stale(s, 6)
	e.stale(s, 1)
	e.holds(s, "new")
	e.write(s, 7, "newer")
}

func checkBothTokens(e *env) {
	s := e.open()
	e.write(s, 9, "x")
	err := s.Write(e.ctx, e.grant(7), []byte("late"))
	refused, ok := errors.AsType[*fence.RefusedError](err)
	if !ok {
		e.Fatalf("the refusal is %v, want a *fence.RefusedError", err)
	}
	if refused.Grant.Token != 7 || refused.Mark.Token != 9 {
		e.Errorf("the refusal says tokens %d and %d, want 7 and 9", refused.Grant.Token, refused.Mark.Token)
	}
}

// checkNumbers finds guards that compare tokens as text or as 32-bit floating-point numbers, or
// store fewer than 53 bits.
func checkNumbers(e *env) {
	for _, pair := range [][2]lockstep.Token{
		{9, 10}, {99, 100}, {1<<24 - 1, 1 << 24}, {1 << 24, 1<<24 + 1}, {1<<31 - 1, 1 << 31}, {1<<32 - 1, 1 << 32}, {1<<32 + 1, 1<<32 + 2},
		{lockstep.MaxToken - 1, lockstep.MaxToken},
	} {
		e := e.fresh()
		s := e.open()
		e.write(s, pair[0], "smaller")
		e.write(s, pair[1], "larger")
		e.stale(s, pair[0])
		e.holds(s, "larger")
	}
}

func checkOtherClient(e *env) {
	a, b := e.open(), e.open()
	e.write(a, 6, "by a")
	e.write(b, 7, "by b")
	e.stale(a, 6)
	e.stale(e.open(), 6)
	e.holds(a, "by b")
	e.write(a, 8, "by a again")
	e.stale(b, 7)
}

func checkResources(e *env) {
	other := e.fresh()
	a, b := e.open(), other.open()
	e.write(a, 9, "a")
	other.write(b, 1, "b")
	e.stale(a, 1)
	e.holds(a, "a")
	other.holds(b, "b")
}

// checkEqualBytes finds guards that identify a version by its contents, as an ETag does.
func checkEqualBytes(e *env) {
	a, b := e.open(), e.open()
	e.write(a, 6, "same")
	e.write(b, 7, "same")
	e.stale(a, 6)
	e.write(b, 7, "other")
	e.write(b, 7, "same") // back to what A has written
	e.stale(a, 6)
	e.holds(a, "same")
}

func checkDeletion(e *env) {
	a, b := e.open(), e.open()
	e.write(a, 6, "by a")
	e.remove(b, 7)
	e.empty(a)
	e.stale(a, 6)
	e.stale(e.open(), 6)
	e.empty(a)
	e.remove(b, 7)
	e.write(b, 7, "again")
	e.holds(a, "again")
	e.stale(a, 6)
}

func checkEmptyDeletion(e *env) {
	a, b := e.open(), e.open()
	e.remove(b, 7)
	e.stale(a, 6)
	e.empty(a)
	e.write(a, 8, "x")
	e.holds(b, "x")
}
