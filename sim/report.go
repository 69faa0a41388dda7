package sim

import (
	"time"

	"github.com/lockstep-dev/lockstep/sim/check"
)

// Options say what to run.
type Options struct {
	// Seed decides everything that happens.
	Seed uint64
	// Nodes is the size of the cluster, 3 or 5. Default: drawn from the seed.
	Nodes int
	// Clients is how many clients run at a time, 1 to 50. Default: 3 to 6, drawn from the seed.
	Clients int
	// Duration is the simulated time with faults. Default: 30 s.
	Duration time.Duration
	// Calm disables all faults.
	Calm bool
	// Without lists kinds of faults to leave out, as named by [Kinds], for shrinking a failure by
	// hand. Unknown names have no effect.
	Without []string
	// Only, if not empty, lists the kinds of faults that may be on, and enables all of them.
	Only []string
	// TTL, if not zero, is the TTL of all clients, instead of 1 to 10 s drawn from the seed.
	TTL time.Duration
	// Trace receives every line of the trace. Default: only the last lines are kept, for the
	// report.
	Trace func(line string)
}

// A Report describes a run.
type Report struct {
	Seed      uint64         `json:"seed"`
	Nodes     int            `json:"nodes"`
	Clients   int            `json:"clients"`
	TraceHash string         `json:"trace_hash"` // 16 hexadecimal digits
	Simulated time.Duration  `json:"-"`
	Events    int            `json:"events"`
	Entries   uint64         `json:"entries"` // in the log
	Grants    int            `json:"grants"`
	Faults    []string       `json:"faults"` // the enabled kinds
	Counters  map[string]int `json:"counters"`
	Failure   *Failure       `json:"failure,omitempty"`
}

// A Failure is a broken promise.
type Failure struct {
	Seed    uint64        `json:"seed"`
	Promise check.Promise `json:"promise"`
	Detail  string        `json:"detail"`
	At      time.Duration `json:"-"`
	Trace   []string      `json:"trace"` // the last lines, oldest first
	// Shrunk is a smaller run of the seed that breaks the same promise; RunMany looks for one for
	// its first failure.
	Shrunk *Shrunk `json:"shrunk,omitempty"`
}

// Shrunk are the options of a smaller run of a failing seed.
type Shrunk struct {
	Clients  int      `json:"clients"`
	Duration string   `json:"duration"`
	Without  []string `json:"without"`
}

// A Summary describes many runs.
type Summary struct {
	Seeds            int            `json:"seeds"` // number that ran
	FirstSeed        uint64         `json:"first_seed"`
	TraceHash        string         `json:"trace_hash"` // over the hashes of all runs
	SimulatedSeconds float64        `json:"simulated_seconds"`
	WallSeconds      float64        `json:"wall_seconds"`
	Events           int            `json:"events"`
	Entries          uint64         `json:"entries"`
	Grants           int            `json:"grants"`
	Counters         map[string]int `json:"counters"`
	// Unreached lists what never happened although a long run should reach it.
	Unreached []string `json:"unreached,omitempty"`
	// Failures are those of the first seeds that failed, at most MaxFailures.
	Failures []Failure `json:"failures,omitempty"`
}
