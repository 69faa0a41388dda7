package cli

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// heldVariable lists, with blanks between them, the locks that the runs around a command hold.
const heldVariable = "LOCKSTEP_HELD"

// The modes of a held lock that are no permits.
const (
	modeExclusive = "x"
	modeShared    = "s"
)

// A heldLock is one of them: PID:MODE:SERVICE:NAME.
type heldLock struct {
	pid     int    // of the run that holds it
	mode    string // x, s, or permits as k/n
	service string // a short hash of where the lock is
	name    string
}

// held are the locks of a plan.
func held(pid int, plan claimPlan) (all []heldLock) {
	for _, name := range plan.names() {
		all = append(all, heldLock{pid, plan.mode, serviceKey(plan.target), name})
	}
	return all
}

// serviceKey is the same for the same service, however its endpoints are ordered, and tells no password.
func serviceKey(t Target) string {
	sum := sha256.Sum256([]byte(t.Backend.Place()))
	return fmt.Sprintf("%x", sum[:6])
}

func (h heldLock) String() string {
	return fmt.Sprintf("%d:%s:%s:%s", h.pid, h.mode, h.service, url.QueryEscape(h.name))
}

// parseHeld skips what it does not understand: the variable may be anybody's.
func parseHeld(text string) []heldLock {
	var all []heldLock
	for _, word := range strings.Fields(text) {
		parts := strings.SplitN(word, ":", 4)
		if len(parts) != 4 {
			continue
		}
		pid, errPID := strconv.Atoi(parts[0])
		name, errName := url.QueryUnescape(parts[3])
		if errPID == nil && errName == nil {
			all = append(all, heldLock{pid, parts[1], parts[2], name})
		}
	}
	return all
}

// excludes reports whether a claim of mode cannot be granted while these are held.
func excludes(all []heldLock, mode string) bool {
	var permits ratio
	if mode != modeExclusive && mode != modeShared && permits.Set(mode) != nil {
		return false
	}
	taken := permits.k
	for _, h := range all {
		var p ratio
		switch {
		case h.mode == modeExclusive || mode == modeExclusive:
			return true
		case permits.n > 0 && p.Set(h.mode) == nil:
			taken += p.k
		}
	}
	return permits.n > 0 && taken > permits.n
}
