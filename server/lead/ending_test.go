package lead

import (
	"slices"
	"testing"
)

func TestALargeSessionIsTakenWholeAndTheOrderIsKept(t *testing.T) {
	var e ending[int]
	for _, k := range []int{5, 1, 7, 9, 2} {
		e.add(k)
	}
	e.add(5) // is there
	e.drop(7)
	weight := func(k int) int { return k }
	for _, want := range [][]int{{5, 1}, {9}, {2}, nil} {
		if got := e.take(6, weight); !slices.Equal(got, want) {
			t.Errorf("took %v, want %v", got, want)
		}
	}
	if e.fresh() || e.len() != 4 {
		t.Errorf("fresh %v with %d under way, want all 4", e.fresh(), e.len())
	}
}
