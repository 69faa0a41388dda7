//go:build mutant_dedupe

package machine

// mutantDedupe is a planted bug that the simulator must find: the machine
// takes a repeated request for a new one.
const mutantDedupe = true
