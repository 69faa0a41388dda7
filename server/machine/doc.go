// Package machine is the lock table as a state machine: commands in, results,
// changes and events out.
//
// A [Machine] reads no clock, does no I/O, starts no goroutine and draws no random
// number. Two machines that apply the same commands in the same order hold the
// same state and give the same output, byte for byte. The replicas of a cluster and
// the simulator both stand on that. Everything that Apply depends on, limits too,
// is state that a logged command put there.
//
// # Invariants
//
//  1. A name has at most one exclusive holder.
//  2. The tokens of a name rise strictly over exclusive grants and never fall.
//  3. After every command no claim that is first in all its queues fits.
//  4. A claim is in the queues of all its names or holds all of them.
//  5. Every waiter has a live session; every holder has one or is closing.
package machine
