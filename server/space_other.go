//go:build !linux && !darwin

package server

// space is not implemented on this platform.
func space(string) (free, size uint64, ok bool) { return 0, 0, false }
