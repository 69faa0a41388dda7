// Package machine implements the lock table as a state machine: it applies commands and returns
// results, changes and events. Package command has their types and the encoding of commands.
//
// A [Machine] reads no clock, does no I/O, starts no goroutine and draws no random number. Two
// machines that apply the same commands in the same order hold the same state and produce the same
// output, byte for byte. The replicas of a cluster and the simulator both rely on that. Everything
// that Apply depends on, including the limits, is state that a logged command put there.
//
// # Invariants
//
//  1. A name has at most one exclusive holder.
//  2. The tokens of a name rise strictly over exclusive grants and never fall.
//  3. After every command, no queued claim could be granted.
//  4. A claim is in the queues of all its names or holds all of them.
//  5. Every waiter has a live session; every holder has a live session or is closing.
//  6. A queue is in log order. No claim overtakes another.
//  7. A claim is granted at most once, and a claim that is over stays over.
//  8. The end of a claim that is reported to its owner is remembered until its client has let go
//     of the number and a logged command says that the client has reached that change. A claim
//     with a nonce is remembered until the client lets go of its number.
//
// [Machine.CheckInvariants] checks those that are visible in the state; the tests check all of them
// from outside.
//
// # How it is built
//
// Sessions own claims, and each claim has a place at each of its names: in the queue or among the
// holders. Names are derived from their claims: a name without claims does not exist, and a
// snapshot holds only sessions and claims. A claim enters the queues of all its names at once and
// is granted when it is first in each of them and each name can take it. Whenever a claim is
// removed from a name, that name goes on a list; settle then tries the heads of the queues, in the
// order of the list, until none can be granted.
//
// A claim that is over for its owner may be closing: it still counts as a holder until the owner
// acknowledges the end, or until the leader says that the owner's lease must have ended. That is
// how a revocation and a lock delay keep others out.
//
// An entry costs about 2 us for an Acquire and a Release, including encoding and decoding
// (BenchmarkFree). While a snapshot is being captured, a command waits at most for those parts of
// the state that it is the first to change, some 30 us each (BenchmarkFirstChange).
package machine
