//go:build !linux && !darwin

package server

// openLimit is how many files this process may open; 0 when that is not known.
func openLimit() uint64 { return 0 }
