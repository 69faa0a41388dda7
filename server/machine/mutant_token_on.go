//go:build mutant_token

package machine

// mutantToken is a planted bug that the simulator must find: the machine
// gives the same token out again.
const mutantToken = true
