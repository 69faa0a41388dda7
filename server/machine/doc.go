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
//  6. A queue is in the order of the log. Nobody passes anybody.
//  7. A claim is granted at most once, and what is over stays over.
//  8. The end of a claim that its owner is told of is remembered until its client let go of the
//     number and a logged command said that the client has reached that change. A claim with a nonce
//     is remembered until the client let go of its number.
//
// [Machine.CheckInvariants] checks those that can be seen in the state; the tests check
// all of them from outside.
//
// # How it is built
//
// Sessions own claims, and claims have places at names: in a queue or among the
// holders. Names are made of their claims: without any there is no name, and a
// snapshot holds sessions and claims alone. A claim enters the queues of all its names at
// once and is granted when it is first in each and each can take it. Whatever
// takes a claim away from a name puts that name on a list; settle then tries the
// heads of these queues, in the order of the list, until none fits.
//
// A claim that is over for its owner may be closing: it still counts among the holders
// until the owner says that it knows, or until the leader says that the owner's lease
// must have ended. That is how a revocation and a lock delay keep others out.
//
// An entry costs about 2 us for an Acquire and a Release with encoding and decoding
// (BenchmarkFree). While a snapshot is captured, a command waits for at most the
// parts of the state that it is the first to change, some 30 us each (BenchmarkFirstChange).
package machine
