package term

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since boot, including suspends (CLOCK_BOOTTIME).
func Now() time.Duration { return read(unix.CLOCK_BOOTTIME) }

func read(clock int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil { // no lease can be judged without a clock
		panic(fmt.Sprintf("term: clock_gettime(%d): %v", clock, err))
	}
	return time.Duration(ts.Nano())
}
