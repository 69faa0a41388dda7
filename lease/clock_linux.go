package lease

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2). Package syscall does not
// name it.
const clockBoottime = 7

// bootClock reads CLOCK_BOOTTIME. It is a real system call that takes less than a microsecond
// (BenchmarkSystemClock): the standard library uses the vDSO only for Go's own clocks, which stop
// during suspend.
type bootClock struct{}

// systemClock falls back to Go's clock where the kernel or a sandbox refuses the call. The refusal
// would come on the first call, so one process never mixes the two.
func systemClock() Clock {
	if _, errno := boottime(); errno != 0 {
		return monotonicClock{processStart}
	}
	return bootClock{}
}

func (bootClock) Now() time.Duration {
	now, errno := boottime()
	if errno != 0 { // it worked when the clock was created: leases can no longer be judged
		panic(fmt.Sprintf("lease: clock_gettime(CLOCK_BOOTTIME): %v", errno))
	}
	return now
}

func boottime() (time.Duration, syscall.Errno) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno
}
