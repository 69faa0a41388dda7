//go:build unix && !linux

package supervise

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time on the system's monotonic clock. Whether that includes suspends depends on the
// system; on macOS it does. The clock of package lease cannot be used here: it is Go's, which
// starts with each process, and the watcher is another process.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil { // no lease can be judged without a clock
		panic(fmt.Sprintf("supervise: clock_gettime: %v", err))
	}
	return time.Duration(ts.Nano())
}

// checkClock does nothing: the processes of a machine share CLOCK_MONOTONIC.
func checkClock() error { return nil }
