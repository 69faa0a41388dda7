//go:build !unix

package supervise

// Hidden does nothing: this system has no process groups.
func Hidden([]string) (code int, mine bool) { return 0, false }

// Adopt does nothing: this system cannot run a command under a lock.
func Adopt() error { return nil }
