//go:build unix

package cli

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-dev/lockstep/cmd/internal/term"
)

// finish ends a holding whose child has ended, and returns the exit code. A command
// that ended by itself may leave processes behind; of one that we stopped nothing
// stays.
func (h *holding) finish() (int, error) {
	if h.overseer.phase == running {
		h.watcher.StandDown() // before the child's number may become somebody else's
	}
	status, err := h.child.Reap()
	if h.overseer.phase != running {
		h.endGroup()
		h.watcher.StandDown()
	}
	if h.terminal != nil {
		h.terminal.TakeBack()
		if status.Signaled() {
			h.terminal.Restore()
		}
	}
	if loss := h.overseer.verdict(h.plan.name, h.lock.Token()); loss != nil {
		return 0, exitError{CodeLost, loss}
	}
	if err != nil {
		return 0, exitError{CodeInternal, err}
	}
	return status.Code(), nil
}

// endGroup gives what is left of the group its time after TERM, and then kills it.
func (h *holding) endGroup() {
	for h.child.Group().Exists() {
		h.obey(h.look())
		if h.killedAt > 0 && term.Now()-h.killedAt > leftoversAfter {
			return
		}
		time.Sleep(groupLook)
	}
}

// giveUp leaves a command that does not die of SIGKILL. The lock is not given
// back: the service frees it after the TTL, as late as it may.
func (h *holding) giveUp() (int, error) {
	h.stuck = true
	if h.terminal != nil {
		h.terminal.TakeBack()
	}
	return 0, fmt.Errorf("process group %d is still there %v after it was killed; the lock is left to its lease",
		h.child.Group(), stuckAfter)
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
