//go:build linux || darwin

package server

import "syscall"

// openLimit returns how many files this process may open; 0 if that is not known. The Go runtime
// has raised the soft limit to the hard one.
func openLimit() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return uint64(l.Cur)
}
