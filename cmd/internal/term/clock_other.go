//go:build unix && !linux

package term

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time on the system's monotonic clock. Whether that includes suspends depends on the
// system; on macOS it does.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil { // no lease can be judged without a clock
		panic(fmt.Sprintf("term: clock_gettime: %v", err))
	}
	return time.Duration(ts.Nano())
}
