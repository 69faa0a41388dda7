//go:build unix

package cli

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// endWithLook is the interval between checks of what --end-with names.
const endWithLook = 100 * time.Millisecond

// due says why it is time to end, or returns "".
func (e endWith) due() string {
	if e.parent != 0 && unix.Getppid() != e.parent {
		return "the parent process is gone"
	}
	if e.stdin && stdinClosed() {
		return "standard input was closed"
	}
	return ""
}

// endsEarly returns the error that ends a waiting claim: its exit code is that of a command killed
// by TERM.
func endsEarly(why string) error {
	return exitError{128 + int(unix.SIGTERM), errors.New(why + ": giving up the wait")}
}

// stdinClosed reports whether standard input no longer has a writer. It reads nothing.
func stdinClosed() bool {
	fds := []unix.PollFd{{Fd: 0, Events: 0}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}
