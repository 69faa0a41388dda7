//go:build !mutant_join

package lead

// mutantJoin plants a bug: a keepalive joins a quorum round that is already open.
const mutantJoin = false
