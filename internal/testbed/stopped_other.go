//go:build unix && !linux

package testbed

// awaitStopped does not wait: this system does not show the states of threads.
func awaitStopped(int) error { return nil }
