//go:build mutant_forget

package machine

// mutantForget is a planted bug that the simulator must find: the machine forgets an ended claim by
// the floor alone, before its holder has learned of the end.
const mutantForget = true
