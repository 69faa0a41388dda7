//go:build !mutant

package machine

// Bugs that sim/mutants.sh plants to see that the simulator finds them.
const (
	mutantDedupe = false // a repeated request is treated as a new one
	mutantForget = false // an ended claim is forgotten by the floor alone, before its holder has learned of the end
	mutantLIFO   = false // the last waiter of a queue is granted instead of the first
	mutantToken  = false // the same token is issued again
)
