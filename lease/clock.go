package lease

import "time"

// A Clock measures spans of time. It has an arbitrary origin, never goes back, and should keep
// running while the machine is suspended.
type Clock interface {
	// Now is the time since the origin of the clock.
	Now() time.Duration
}

// SystemClock is the machine's clock for leases: CLOCK_BOOTTIME on Linux, which counts suspends,
// and Go's monotonic clock elsewhere, which may not. Within one process all SystemClock values
// share one origin. Wall-clock changes do not move it.
func SystemClock() Clock { return systemClock() }

// monotonicClock is Go's own clock since origin.
type monotonicClock struct{ origin time.Time }

func (c monotonicClock) Now() time.Duration { return time.Since(c.origin) }

// processStart is the origin of the monotonic clock in this process.
var processStart = time.Now()
