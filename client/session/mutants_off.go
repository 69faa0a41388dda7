//go:build !mutant

package session

// leaseMovesUnseen is a bug that sim/mutants.sh plants to see that the simulator finds it: after a
// reconnect the lease moves although the changes in the meantime were not seen.
const leaseMovesUnseen = false
