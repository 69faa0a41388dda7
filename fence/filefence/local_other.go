//go:build !linux

package filefence

// checkLocal accepts every directory: here it cannot tell local file systems from others.
func checkLocal(string) error { return nil }
