//go:build unix && !linux

package supervise

// signalsAtStart returns no settings: the Go runtime leaves ignored SIGHUP and SIGINT alone, and
// the other settings are lost.
func signalsAtStart() signalSettings { return signalSettings{} }

func block(uint64) {}
