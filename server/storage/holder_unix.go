//go:build unix

package storage

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lockHolder is the pid of the other process whose lock made F_SETLK on path fail with err; 0 when
// it is not known: err is something else, the lock has been released since, or its holder is on
// another machine or in another pid namespace.
//
// It asks the system, because a pid written to the file would not last: every attempt to lock the
// file truncates it first.
func lockHolder(path string, err error) int {
	// In a process that has the lock, closing any descriptor of the file would end that lock.
	if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) {
		return 0
	}
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock); err != nil || lock.Type == syscall.F_UNLCK {
		return 0
	}
	return max(0, int(lock.Pid))
}
