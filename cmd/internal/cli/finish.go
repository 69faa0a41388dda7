//go:build unix

package cli

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/lockstep-dev/lockstep/cmd/internal/term"
)

// finish ends a holding that is over, and returns the exit code.
func (h *holding) finish() (int, error) {
	h.child.Release()
	if h.terminal != nil {
		h.terminal.TakeBack()
		if h.status.Signaled() {
			h.terminal.Restore()
		}
	}
	if loss := h.overseer.verdict(h.plan.name, h.lock.Token()); loss != nil {
		return 0, exitError{CodeLost, loss}
	}
	return h.status.Code(), nil
}

// giveUp leaves a command that does not die of SIGKILL. The lock is not given
// back: the service frees it after the TTL, as late as it may.
func (h *holding) giveUp() (int, error) {
	h.stuck = true
	left := h.child.Left()
	h.child.Release()
	if h.terminal != nil {
		h.terminal.TakeBack()
	}
	return 0, fmt.Errorf("the command was not stopped: %v after it was killed there is still %s; the lock is not given back and ends with its lease",
		stuckAfter, term.Name(left))
}

// due says why the command is to end, or nothing.
func (e endWith) due(parent int) string {
	if e.parent && unix.Getppid() != parent {
		return "the parent process is gone: the command is stopped"
	}
	if e.stdin && stdinClosed() {
		return "the standard input was closed: the command is stopped"
	}
	return ""
}

// stdinClosed reports whether the standard input has no writer any more. It reads nothing.
func stdinClosed() bool {
	fds := []unix.PollFd{{Fd: 0, Events: 0}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}
