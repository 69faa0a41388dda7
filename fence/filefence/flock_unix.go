//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filefence

import (
	"errors"
	"os"
	"syscall"
)

const flockWorks = true

// flock locks the file, or reports that another process has it locked. The lock ends when the file
// is closed, and so with the process.
func flock(f *os.File) (locked bool, err error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
