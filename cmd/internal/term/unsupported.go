//go:build !unix

package term

// Hidden does nothing here: there are no process groups.
func Hidden([]string) (code int, mine bool) { return 0, false }

// Adopt does nothing here: no command runs under a lock.
func Adopt() error { return nil }
