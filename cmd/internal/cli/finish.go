//go:build unix

package cli

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/cmd/internal/supervise"
)

// finish ends a holding that is over, and returns the exit code.
func (h *holding) finish() (int, error) {
	if left := h.child.Left(); !h.empty && h.overseer.phase == running && len(left) > 0 {
		h.say("the command ended and left %s running without the lock; --wait-all keeps the lock until they end", supervise.Name(left))
	}
	h.child.Release()
	if h.terminal != nil {
		defer h.terminal.Close()
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

// keep says, once, that the lock is kept for a command that SIGKILL does not end. Only the user may
// end this: the lock is held, and the next holder would run concurrently.
func (h *holding) keep() {
	if h.kept {
		return
	}
	h.kept = true
	h.say("%v after the kill, %s of the command is still alive; %s is renewed until it ends; interrupt to stop waiting and let the lease expire",
		stuckAfter, supervise.Name(h.child.Left()), printable(h.plan.name))
}

// giveUp abandons a command that SIGKILL does not end. The lock is not released: the service frees
// it when its TTL ends, as late as possible.
func (h *holding) giveUp() (int, error) {
	h.stuck = true
	left := h.child.Left()
	h.child.Release()
	if h.terminal != nil {
		h.terminal.TakeBack()
		h.terminal.Close()
	}
	return 0, fmt.Errorf("the command was not stopped: %v after the kill, %s is still alive; the lock is not released, and ends with its lease",
		stuckAfter, supervise.Name(left))
}
