package cli

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// heldVariable lists the locks that the enclosing runs of a command hold, separated by spaces.
const heldVariable = "LOCKSTEP_HELD"

// The modes of a held lock other than permits.
const (
	modeExclusive = "x"
	modeShared    = "s"
)

// A heldLock is an entry of heldVariable: PID:MODE:SERVICE:NAME.
type heldLock struct {
	pid     int    // of the run that holds it
	mode    string // x, s, or permits as k/n
	service string // a short hash of where the lock is
	name    string
}

// held returns the locks of a plan.
func held(pid int, plan claimPlan) (all []heldLock) {
	for _, name := range plan.names() {
		all = append(all, heldLock{pid, plan.mode, serviceKey(plan.target), name})
	}
	return all
}

// serviceKey is the same for the same service in whatever order its endpoints are given, and
// reveals no password.
func serviceKey(t Target) string {
	sum := sha256.Sum256([]byte(t.Backend.Place()))
	return fmt.Sprintf("%x", sum[:6])
}

func (h heldLock) String() string {
	return fmt.Sprintf("%d:%s:%s:%s", h.pid, h.mode, h.service, url.QueryEscape(h.name))
}

// parseHeld skips whatever it does not understand: anyone may set the variable.
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

// excludes reports whether a claim in this mode cannot be granted while these are held.
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
