//go:build unix

package supervise

// finish ends a holding that is over, and returns the exit code.
func (h *holding) finish() (int, error) {
	if left := h.child.Left(); !h.empty && h.overseer.phase == running && len(left) > 0 {
		h.claim.Report(LeftRunning{left})
	}
	h.child.Release()
	if h.terminal != nil {
		defer h.terminal.Close()
		h.terminal.TakeBack()
		if h.status.Signaled() {
			h.terminal.Restore()
		}
	}
	if loss := h.overseer.loss; loss != nil {
		return 0, &LostError{Token: h.lock.Token(), Started: true, Err: loss}
	}
	return h.status.Code(), nil
}

// keep reports, once, that the lock is kept for a command that SIGKILL does not end. Only the user
// may end this: if the lock were released, the next holder would run at the same time.
func (h *holding) keep() {
	if h.kept {
		return
	}
	h.kept = true
	h.claim.Report(Unkillable{After: stuckAfter, Left: h.child.Left()})
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
	return 0, &StuckError{After: stuckAfter, Left: left}
}
