// Package actor is one client of a demonstration, a process of its own: it takes a lock and changes an account under it, step by step as it is told.
//
// [Serve] is the process; [Actor] starts one and talks to it. A step is a line to the standard input of the process, and the answer
// a JSON line from its standard output. The process says by itself when its lock is over.
package actor

import (
	"time"

	"github.com/lockstep-dev/lockstep"
)

// The steps.
const (
	acquire = "acquire" // wait for the lock
	look    = "look"    // enter, read the balances, and look at the lease
	add     = "add"     // write what was read plus an amount, whatever the lease says: the job looked at it before
	release = "release"
)

// A Report is what an actor says: the answer to a step, or that its lock is over.
type Report struct {
	// Step is what was done, or "lost".
	Step string `json:"step"`
	// Error says why a step could not be done.
	Error string `json:"error,omitempty"`
	// Token is that of the grant.
	Token lockstep.Token `json:"token,omitempty"`
	// Remaining is how long the lease lasts unless it is renewed.
	Remaining time.Duration `json:"remaining,omitempty"`
	// Plain and Guarded are the balances that were read or written.
	Plain   int `json:"plain,omitempty"`
	Guarded int `json:"guarded,omitempty"`
	// Refusal is what the guard said to a write that it refused because its token is older than one that it has seen.
	Refusal string `json:"refusal,omitempty"`
	// At is when the report came. It is not sent.
	At time.Time `json:"-"`
}
