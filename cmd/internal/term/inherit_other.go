//go:build unix && !linux

package term

// SignalsAtStart is empty: the runtime of Go leaves ignored SIGHUP and SIGINT alone, and the others are lost.
func SignalsAtStart() Signals { return Signals{} }

func block(uint64) {}
