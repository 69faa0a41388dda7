//go:build mutant_validuntil

package session

// leaseMovesUnseen plants a bug: the lease moves although a change was not seen.
const leaseMovesUnseen = true
