// Package replica is one replica of a group as a step function: Raft, its log and snapshots, the
// members, and the lock table. What it does for clients while it leads is in package lead.
//
// A [Replica] starts no goroutine, reads no clock and does no I/O. A shell calls Step with each
// input, then Turn, and carries out what Turn returns: messages to send, log to make durable,
// replies to deliver. Package node is that shell for real machines, and package sim for simulated
// ones.
//
// A replica has one [lead.Lead], which sees the replica as its [lead.Group].
//
// # Invariants
//
// Towards clients a leader keeps those of package lead. In addition:
//
//  1. The Lead leads exactly as long as Raft does, in the same term. It learns that it was deposed
//     before anything else that Raft has ready together with that.
//  2. A round is reported as confirmed only if this replica started it as leader, in a term that it
//     has led without a break since. Nothing is forwarded.
//  3. Votes and acknowledgements leave after the writes that they depend on are durable, and
//     writes are handed out in the order in which Raft made them.
//  4. The same inputs and times give the same outputs, except for the election jitter, which Raft
//     draws from crypto/rand.Reader.
//
// Start reading in replica.go; drain.go follows an entry through the replica.
package replica
