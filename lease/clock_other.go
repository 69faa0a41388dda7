//go:build !linux

package lease

// systemClock is Go's monotonic clock. It may stop while the machine is suspended: a holder that
// wakes up may then believe in a lease that has ended.
func systemClock() Clock { return monotonicClock{processStart} }
