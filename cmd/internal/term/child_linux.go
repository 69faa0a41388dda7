package term

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes: the parent-death signal reaches the direct child alone, but it
// does so even when parent and watcher are killed together.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// dieWithParent repeats the parent-death signal for the calling thread, and reports
// whether the parent is still there.
func dieWithParent(parent int) bool {
	err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	return err == nil && unix.Getppid() == parent
}

// awaitChange blocks until the process has ended or stopped, and takes neither.
func awaitChange(pid int) error {
	var info unix.Siginfo
	return unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
}

// ended reports whether the process has ended. It does not reap it.
func ended(pid int) (bool, error) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return info.Signo != 0, err
}
