//go:build unix && !linux

package term

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeSubreaper does nothing: there are no subreapers here.
func becomeSubreaper() error { return nil }

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// dieWithParent leaves it to the watcher.
func dieWithParent(int) bool { return true }

// lingers: what the command's own children leave behind in its group is found by the group alone.
func lingers(g Group) bool { return g.known() && g.Exists() }

const waitAll = 0

func below(int, []int) ([]Process, error) { return nil, errNoTree }

// Descends reports whether the other process exists: nothing here says who its descendants are.
func Descends(from int) bool { return from > 0 && unix.Kill(from, 0) == nil }
