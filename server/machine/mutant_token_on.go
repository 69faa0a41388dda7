//go:build mutant_token

package machine

// mutantToken is a planted bug that the simulator must find: the machine issues the same token
// again.
const mutantToken = true
