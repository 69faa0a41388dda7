//go:build !mutant_validuntil

package session

// leaseMovesUnseen is false: the lease moves only if the changes that an answer counts have been
// received. The mutant shows that the tests detect a violation.
const leaseMovesUnseen = false
