//go:build unix

package cli

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// endWithLook is the pause between two looks at what --end-with names.
const endWithLook = 100 * time.Millisecond

// due says why the end has come, or nothing.
func (e endWith) due() string {
	if e.parent != 0 && unix.Getppid() != e.parent {
		return "the parent process is gone"
	}
	if e.stdin && stdinClosed() {
		return "the standard input was closed"
	}
	return ""
}

// endsEarly is the end of a claim that waits: the code is that of a command that gets TERM.
func endsEarly(why string) error {
	return exitError{128 + int(unix.SIGTERM), errors.New(why + ", and the waiting ends")}
}

// stdinClosed reports whether the standard input no longer has a writer. It reads nothing.
func stdinClosed() bool {
	fds := []unix.PollFd{{Fd: 0, Events: 0}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}
