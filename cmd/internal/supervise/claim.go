package supervise

import (
	"context"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// A Claim says which lock to wait for, and what ends the wait early.
type Claim struct {
	// Open connects to the backend. The Locker is closed at the end.
	Open    func() (lockstep.Locker, error)
	Name    string
	Options []lockstep.AcquireOption
	// EndWith says what ends the wait, and later the holding, as TERM does.
	EndWith EndWith
	// Report is called with everything that a user should know. Calls do not overlap.
	Report func(Event)
	// Waiting is called when a wait begins, and stop when it is over. The context ends with the
	// wait. Nil: nothing is called.
	Waiting func(ctx context.Context, locker lockstep.Locker) (stop func())
}

// A Candidate says how to campaign for leadership, which means holding the lock of its Claim.
// Others see Identity and Metadata; the Options of the Claim are not used.
type Candidate struct {
	Claim
	Identity string            // see [election.Config]
	Metadata map[string]string // see [election.Config]
	// Connect is how long the Locker tries to reach the service before it fails.
	Connect time.Duration
}

// EndWith says what ends a claim or a holding, apart from signals and the lock. The zero value ends
// nothing.
type EndWith struct {
	Parent int  // end when this is no longer the parent process; 0: its end does not count
	Stdin  bool // end when standard input has no writer left
}

// A Reason says why a claim or a holding ends early, in words for people.
type Reason string

// The reasons of EndWith.
const (
	ParentGone  Reason = "the parent process is gone"
	InputClosed Reason = "standard input was closed"
)

// A Command says what to run under a lock, and how to stop it. Durations of zero mean none.
type Command struct {
	Path string   // of the executable, as returned by [exec.LookPath]
	Args []string // starting with the name of the program
	// Env returns the complete environment.
	Env func(lockstep.Lock) []string
	// KillAfter is the time between TERM and KILL. If the lease is not renewed, TERM comes this
	// long before its end. It is at most a third of the TTL; a longer one is shortened.
	KillAfter time.Duration
	// Drain is the time between TERM and KILL while the lock is held, if that is longer.
	Drain time.Duration
	// WaitAll keeps the lock until all descendants of the command have ended.
	WaitAll bool
	// AtLeast keeps the lock this long from the start of the command.
	AtLeast time.Duration
	// MaxHold is how long the command may run before it gets TERM.
	MaxHold time.Duration
}
