//go:build !mutant_validuntil

package session

// leaseMovesUnseen is false: the lease moves only when the changes that an answer
// counts were received. The mutant shows that the tests notice it otherwise.
const leaseMovesUnseen = false
