// Package actor is one client of a demo, a separate process: it takes a lock and changes an account
// under it, one step at a time, on request.
//
// [Serve] is the process; [Actor] starts one and talks to it. A step is a line on the standard
// input of the process, and the answer is a JSON line on its standard output. The process also
// reports when its lock is lost.
package actor

import (
	"time"

	"github.com/lockstep-dev/lockstep"
)

// The steps.
const (
	acquire = "acquire" // wait for the lock
	look    = "look"    // enter, read the balances, and check the lease
	add     = "add"     // write what was read plus an amount, whatever the lease says: the job checked it before
	release = "release"
)

// A Report is what an actor prints: the answer to a step, or that its lock is lost.
type Report struct {
	// Step is the step done, or "lost".
	Step string `json:"step"`
	// Error says why a step failed.
	Error string `json:"error,omitempty"`
	// Token is the token of the grant.
	Token lockstep.Token `json:"token,omitempty"`
	// Remaining is the rest of the lease, unless it is renewed.
	Remaining time.Duration `json:"remaining,omitempty"`
	// Plain and Guarded are the balances that were read or written.
	Plain   int `json:"plain,omitempty"`
	Guarded int `json:"guarded,omitempty"`
	// Refusal is the guard's error for a write that it rejected because the token is older than one
	// it has seen.
	Refusal string `json:"refusal,omitempty"`
	// At is when the report arrived. It is not sent.
	At time.Time `json:"-"`
}
