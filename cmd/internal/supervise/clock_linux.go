package supervise

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-dev/lockstep/lease"
)

// clock is the clock that leases use, so that their readings can be compared with ours.
var clock = lease.SystemClock()

// Now is the time since boot, including suspends. All processes of the machine share it.
func Now() time.Duration { return clock.Now() }

// checkClock fails if the watcher would not share the clock. Where the kernel or a sandbox refuses
// CLOCK_BOOTTIME, package lease uses a clock that starts with the process.
func checkClock() error {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return fmt.Errorf("read CLOCK_BOOTTIME: %w: the watcher needs it: allow clock_gettime in the sandbox", err)
	}
	return nil
}
