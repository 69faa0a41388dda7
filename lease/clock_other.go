//go:build !linux

package lease

func systemClock() Clock { return monotonicClock{processStart} }
