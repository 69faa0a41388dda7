//go:build !unix

package term

// Hidden does nothing here: there are no process groups.
func Hidden([]string) (code int, mine bool) { return 0, false }
