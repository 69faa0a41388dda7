//go:build unix

package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// endWithInterval is the time between checks of what EndWith names.
const endWithInterval = 100 * time.Millisecond

// due says why it is time to end, or returns "".
func (e EndWith) due() Reason {
	if e.Parent != 0 && unix.Getppid() != e.Parent {
		return ParentGone
	}
	if e.Stdin && stdinClosed() {
		return InputClosed
	}
	return ""
}

// stdinClosed reports whether standard input no longer has a writer. It reads nothing.
func stdinClosed() bool {
	fds := []unix.PollFd{{Fd: 0, Events: 0}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}
