// Package replica is one replica of a group as a step function: Raft, the lock table, the leases of
// sessions and the batching of requests.
//
// A [Replica] starts no goroutine, reads no clock and does no I/O. A shell calls Step with each
// input, then Turn, and carries out what Turn returns: messages to send, log to make durable,
// replies to deliver. Package node is that shell for real machines, and package sim for simulated
// ones.
//
// A request is proposed if it changes the lock table, or held for a quorum round if its answer
// depends on this replica being the leader. Commands that arrive while an entry is in flight share
// the next one; requests that arrive while a round is open share the next one.
//
// # Invariants
//
//  1. Nothing is served before an entry of the replica's own term is applied, and nothing after
//     its leadership ended: requests that are still waiting are refused with NotLeader.
//  2. A lease is renewed, a read answered, and the end of a session reported only after a quorum
//     confirmed a round that this replica started as leader after the request arrived, in a term
//     that it has led without a break since.
//  3. This replica ends a lease no earlier than TTL + grace after its last renewal, and never
//     while a keepalive that is older than that end has not been handled. While the end of a lease
//     is recorded in the log, no keepalive of its session is answered.
//  4. Commands that this replica makes up carry its term and are void in another. Nothing is
//     forwarded.
//  5. A stream gets the changes of its session in order: those that it missed before Attached, and
//     all of them before the Kept that counts them.
//  6. Votes and acknowledgements leave after the writes that they depend on are durable, and
//     writes are handed out in the order in which Raft made them.
//  7. The same inputs and times give the same outputs, except for the election jitter, which Raft
//     draws from crypto/rand.Reader.
//
// Start reading in leadership.go; drain.go follows an entry through the replica.
package replica
