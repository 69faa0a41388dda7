package redlock

import (
	"slices"
	"testing"

	"github.com/lockstep-dev/lockstep"
)

func TestAttemptNeedsAMajorityInBothSteps(t *testing.T) {
	a := newAttempt(5)
	a.granted(0, 7)
	a.granted(1, 40)
	a.declined(2)
	if nodes, token := a.beginRaise(); nodes != nil || token != 0 || a.phase != failed {
		t.Fatalf("two of five: raise %v to %d", nodes, token)
	}
	if a.finish() {
		t.Error("an attempt without a majority has won")
	}
	if got := a.mayHold(); !slices.Equal(got, []int{0, 1, 3, 4}) {
		t.Errorf("to be undone on %v, want on all that have not declined", got)
	}
}

func TestTokenIsAboveAllReadings(t *testing.T) {
	a := newAttempt(5)
	a.granted(0, 7)
	a.granted(3, 40)
	a.unreached(1)
	a.granted(2, 9)
	nodes, token := a.beginRaise()
	if token != 41 || !slices.Equal(nodes, []int{0, 2, 3}) {
		t.Fatalf("raise %v to %d, want those that were read, to 41", nodes, token)
	}
	a.granted(4, 90) // late: it was not read in step 1
	a.confirmed(4)
	a.confirmed(0)
	a.confirmed(0)
	a.confirmed(2)
	if a.decided() || a.tally(raised) != 2 {
		t.Errorf("decided with %d of 5 raised", a.tally(raised))
	}
	a.confirmed(3)
	if !a.decided() || !a.finish() || a.token != 41 {
		t.Errorf("phase %d, token %d", a.phase, a.token)
	}
}

func TestAttemptFailsWhenItsLockIsGoneInStep2(t *testing.T) {
	a := newAttempt(3)
	a.granted(0, 1)
	a.granted(1, 1)
	a.beginRaise()
	a.confirmed(0)
	a.vanished(1)
	if !a.decided() || a.finish() {
		t.Error("one of three is no majority")
	}
	if got := a.mayHold(); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("to be undone on %v", got)
	}
}

func TestCounterThatLeavesNoTokenIsNotRead(t *testing.T) {
	a := newAttempt(3)
	a.granted(0, lockstep.MaxToken)
	a.granted(1, lockstep.MaxToken-1)
	a.granted(2, 0)
	if nodes, token := a.beginRaise(); token != lockstep.MaxToken || !slices.Equal(nodes, []int{1, 2}) {
		t.Errorf("raise %v to %d", nodes, token)
	}
}

func TestStepIsDecidedWhenNoAnswerCanChangeIt(t *testing.T) {
	a := newAttempt(3)
	a.declined(0)
	if a.decided() {
		t.Error("two may still grant")
	}
	a.unreached(1)
	if !a.decided() {
		t.Error("one of three can no longer win")
	}
}

func TestTally(t *testing.T) {
	for _, c := range []struct {
		tally                       tally
		carried, rejected, answered bool
	}{
		{tally{5, 3, 0}, true, false, true},
		{tally{5, 2, 1}, false, false, true},
		{tally{5, 0, 3}, false, true, true},
		{tally{5, 2, 0}, false, false, false},
		{tally{3, 1, 2}, false, true, true},
	} {
		if got := c.tally; got.carried() != c.carried || got.rejected() != c.rejected || got.answered() != c.answered {
			t.Errorf("%+v: carried %v, rejected %v, answered %v", got, got.carried(), got.rejected(), got.answered())
		}
	}
}
