package sim

import (
	"math"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// maxDrift is how far the rate of a clock may be from true time. Two clocks then differ by less
// than the 2 % that the promises tolerate.
const maxDrift = 0.009

// A clock is the monotonic clock of one machine, which keeps counting during suspend, and its wall
// clock.
type clock struct {
	rate   float64
	origin time.Duration // its reading at the true time 0
	jump   time.Duration // of the wall clock
}

func newClock(r random) clock {
	return clock{
		rate:   1 + maxDrift*(2*r.Float64()-1),
		origin: r.between(0, time.Hour),
	}
}

// read returns the reading at the true time t.
func (c *clock) read(t time.Duration) time.Duration {
	return c.origin + time.Duration(float64(t)*c.rate)
}

// when returns the first true time at which the clock reads at least d, in whole microseconds.
func (c *clock) when(d time.Duration) time.Duration {
	if d == math.MaxInt64 {
		return d
	}
	t := time.Duration(float64(d-c.origin) / c.rate)
	return t + time.Microsecond - t%time.Microsecond
}

// epoch is the wall-clock time at the true time 0: the middle of 2026.
const epoch = 1_782_000_000_000

func (c *clock) wall(t time.Duration) command.WallMillis {
	return command.WallMillis(epoch + (t + c.jump).Milliseconds())
}
