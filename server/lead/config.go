package lead

import (
	"io"
	"log/slog"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// A Config configures New. Only Stopwatch may be left out. The replica's configuration has the
// defaults and says what the values mean for an operator.
type Config struct {
	ID      uint64           // of this node: it signs the entries
	Machine *machine.Machine // the lock table; Installed replaces it
	Applied uint64           // index of the last entry in it

	// Grace is added to every lease, because a client may notice the end of its lease that late.
	Grace time.Duration
	// MaxStep is the most time that the healthy clock credits in one turn.
	MaxStep time.Duration
	// RoundEvery is the shortest interval between rounds that serve only held keepalives, RoundIdle
	// the longest between rounds while there are sessions.
	RoundEvery, RoundIdle time.Duration

	// BatchCommands, BatchBytes and BatchAge close a batch even though an entry is in flight, if
	// InFlight allows another.
	BatchCommands int
	BatchBytes    int
	BatchAge      time.Duration
	InFlight      int // entries that are proposed and not applied, at most
	// QueueCommands bounds the Acquire, Open and Revoke requests waiting for a batch. Other requests
	// have their own bound, eight times as high.
	QueueCommands int
	// SessionsPerAddress bounds the sessions of one client address.
	SessionsPerAddress int
	// CheckEvery is the number of entries between two checks of the state's hash.
	CheckEvery uint64

	// Stopwatch reads a clock that measures how long reads take. Default: none; estimates are used.
	Stopwatch func() time.Duration
	// Rand is read only in New: it seeds the jitter of leases.
	Rand io.Reader
	// Logger receives the log.
	Logger *slog.Logger
}

// grace returns Grace in the unit of the answers to clients.
func (c *Config) grace() command.Millis { return command.Millis(c.Grace.Milliseconds()) }

// timed runs what is estimated to cost that many microseconds, and returns how long it took.
func (c *Config) timed(cost int, run func()) time.Duration {
	if c.Stopwatch == nil {
		run()
		return time.Duration(cost) * time.Microsecond
	}
	before := c.Stopwatch()
	run()
	return c.Stopwatch() - before
}
