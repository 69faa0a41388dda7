package replica

import "github.com/lockstep-dev/lockstep/server/command"

const (
	// tokenEpoch is 2025-01-01, from which token floors count.
	tokenEpoch = 1_735_689_600
	// tokenAhead lets the next floor, which comes from another clock, be up to an hour behind this
	// one.
	tokenAhead = 3_600
	// tokenShift leaves room for 4,194,304 grants per second between two floors.
	tokenShift = 22
	// tokenEnd is in 2093, when floors would outgrow command.MaxToken.
	tokenEnd = tokenEpoch - tokenAhead + 1<<(53-tokenShift)
)

// tokenFloor returns the first token of a cluster that begins at the given wall time, or of one
// that may have lost history: later than any token that an earlier life can have issued. The
// seconds are in the high bits. The microseconds within the second are added, so that two lives
// that begin within one second have floors 1,000 apart for each millisecond between them, which is
// more than a life can grant. The floor stays below 2^53 until 2093.
func tokenFloor(wall command.WallMillis) command.Token {
	seconds, millis := uint64(wall)/1000, uint64(wall)%1000
	return command.Token((seconds-tokenEpoch+tokenAhead)<<tokenShift + millis*1000)
}
