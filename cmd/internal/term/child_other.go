//go:build unix && !linux

package term

import "syscall"

func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// dieWithParent leaves it to the watcher.
func dieWithParent(int) bool { return true }

// awaitChange leaves the waiting to wait4, which reaps at once: there is no
// portable way to look first.
func awaitChange(int) error { return nil }

func ended(int) (bool, error) { return false, nil }
