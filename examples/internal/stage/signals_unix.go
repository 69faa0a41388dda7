//go:build unix

package stage

import "syscall"

// Suspend stops a process without its knowledge.
func Suspend(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

// Resume lets a suspended process go on.
func Resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
