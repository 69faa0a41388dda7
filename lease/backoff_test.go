package lease_test

import (
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
)

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	for draw, want := range map[float64][]time.Duration{
		0:   {50 * ms, 100 * ms, 200 * ms, 250 * ms, 250 * ms},
		0.5: {75 * ms, 150 * ms, 300 * ms, 375 * ms, 375 * ms},
	} {
		b := lease.Backoff{Base: 100 * ms, Max: 500 * ms, Rand: func() float64 { return draw }}
		for i, w := range want {
			if got := b.Next(); got != w {
				t.Errorf("draw %v: wait %d is %v, want %v", draw, i, got, w)
			}
		}
		b.Reset()
		if got := b.Next(); got != want[0] {
			t.Errorf("after a reset %v, want %v", got, want[0])
		}
	}
}

func TestZeroBackoffHasBounds(t *testing.T) {
	var b lease.Backoff
	for range 100 {
		if d := b.Next(); d < 25*ms || d > 2*time.Second {
			t.Fatalf("wait of %v", d)
		}
	}
}
