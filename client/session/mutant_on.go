//go:build mutant_validuntil

package session

// leaseMovesUnseen plants a bug: after a reconnect the lease moves although the changes in the
// meantime were not seen.
const leaseMovesUnseen = true
