//go:build !mutant_unlogged

package lead

// mutantUnlogged plants a bug: a keepalive is answered although the log says when the lease ends.
const mutantUnlogged = false
