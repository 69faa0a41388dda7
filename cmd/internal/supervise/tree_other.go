//go:build unix && !linux

package supervise

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeSubreaper does nothing: there are no subreapers here.
func becomeSubreaper() error { return nil }

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// dieWithParent sets nothing: only the watcher kills the child here.
func dieWithParent(int) bool { return true }

// lingers reports whether the group still exists: the group is the only way to find what the
// command's children left behind.
func lingers(g processGroup) bool { return g.known() && g.Exists() }

const waitAll = 0

func below(int, []int) ([]Process, error) { return nil, errNoTree }

// Descends reports whether the process from exists: this system does not list descendants.
func Descends(from int) bool { return from > 0 && unix.Kill(from, 0) == nil }
