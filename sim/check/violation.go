package check

import (
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A Promise is one of the properties that a run can break.
type Promise string

// The promises, with the words that a report prints.
const (
	Exclusion   Promise = "mutual exclusion: two holders that exclude each other"
	Agreement   Promise = "agreement: replicas differ at one index"
	Tokens      Promise = "tokens: a token did not rise"
	FIFO        Promise = "first come, first served: a waiter was passed"
	DeadSession Promise = "no grant to a session that has ended"
	EarlyExpiry Promise = "no early expiry: a session ended although a renewal was confirmed"
	AtMostOnce  Promise = "at most once: a request took effect twice"
	LostWakeUp  Promise = "no lost wake-up: a claim that fits was not granted"
	Survival    Promise = "what was acknowledged survives"
	HoldersView Promise = "the holder's view ends before another is granted"
	StaleRead   Promise = "linearizable reads: a read missed what was applied before it began"
	WrongAnswer Promise = "answers: the service said what is not so"
	Changes     Promise = "changes: a session's change numbers did not rise one by one"
	History     Promise = "history: the numbers of events did not rise one by one"
	Liveness    Promise = "liveness: the cluster did not recover in time after the faults"
	Reach       Promise = "reach: a long run never did what it is there to check"
	Needless    Promise = "no needless expiry: a session ended while its keepalive waited"
	Bound       Promise = "bound: what is over is freed in time, however often the leader changes"
	NoPanic     Promise = "no panic: the code panicked or span"
)

// A Violation says which promise was broken, and how.
type Violation struct {
	Promise Promise
	Detail  string
}

func (v *Violation) Error() string { return string(v.Promise) + ": " + v.Detail }

func broken(p Promise, format string, args ...any) *Violation {
	return &Violation{Promise: p, Detail: fmt.Sprintf(format, args...)}
}

// Outlived returns the violation for a client that still believes in its lease, for left from now
// on, when the service ends its session.
func Outlived(id command.SessionID, left time.Duration) *Violation {
	return broken(HoldersView, "session %v expired while its client believes in it for another %v", id, left)
}

// Late returns the violation of a bound on the recovery.
func Late(format string, args ...any) *Violation { return broken(Liveness, format, args...) }
