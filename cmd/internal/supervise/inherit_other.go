//go:build unix && !linux

package supervise

// SignalsAtStart is empty: the Go runtime leaves ignored SIGHUP and SIGINT alone, and the other
// settings are lost.
func SignalsAtStart() Signals { return Signals{} }

func block(uint64) {}
