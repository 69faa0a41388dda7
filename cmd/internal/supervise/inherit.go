//go:build unix

package supervise

import (
	"fmt"
	"os/signal"
	"syscall"
)

// signalSettings are the signals that a command ignores and blocks when it starts.
type signalSettings struct {
	ignored, blocked uint64 // bit n-1 is signal n
	masked           bool   // blocked is known
}

func (s signalSettings) word() string { return fmt.Sprintf("%x,%x,%t", s.ignored, s.blocked, s.masked) }

func parseSignals(word string) (s signalSettings, err error) {
	_, err = fmt.Sscanf(word, "%x,%x,%t", &s.ignored, &s.blocked, &s.masked)
	return s, err
}

// take applies the settings to the calling thread, the one that survives exec.
func (s signalSettings) take() {
	for sig := 1; sig < maxSignal; sig++ {
		if s.ignored&(1<<(sig-1)) != 0 {
			signal.Ignore(syscall.Signal(sig))
		}
	}
	if s.masked {
		block(s.blocked)
	}
}
