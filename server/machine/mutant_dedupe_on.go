//go:build mutant_dedupe

package machine

// mutantDedupe is a planted bug that the simulator must find: the machine treats a repeated request
// as a new one.
const mutantDedupe = true
