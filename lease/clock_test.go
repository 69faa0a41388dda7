package lease_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
)

// A fakeClock follows the time of package time, which a synctest bubble fakes, and
// jumps ahead when the machine is "suspended", which timers do not notice.
type fakeClock struct {
	origin    time.Time
	suspended atomic.Int64
}

func newFakeClock() *fakeClock { return &fakeClock{origin: time.Now()} }

func (c *fakeClock) Now() time.Duration {
	return time.Since(c.origin) + time.Duration(c.suspended.Load())
}

func (c *fakeClock) suspend(d time.Duration) { c.suspended.Add(int64(d)) }

func TestSystemClockGoesOnWithTheMonotonicClock(t *testing.T) {
	a, b := lease.SystemClock(), lease.SystemClock()
	from, begin := a.Now(), time.Now()
	time.Sleep(20 * time.Millisecond)
	gap, want := b.Now()-from, time.Since(begin)
	if gap < 20*time.Millisecond || gap > want+20*time.Millisecond {
		t.Errorf("two readings are %v apart, the monotonic clock says %v", gap, want)
	}
}

func TestSystemClockNeverGoesBack(t *testing.T) {
	clock := lease.SystemClock()
	last := clock.Now()
	for range 1000 {
		now := clock.Now()
		if now < last {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
}

func BenchmarkSystemClock(b *testing.B) {
	clock := lease.SystemClock()
	for b.Loop() {
		clock.Now()
	}
}
