//go:build !linux && !darwin

package server

// openLimit returns how many files this process may open; 0 if that is not known.
func openLimit() uint64 { return 0 }
