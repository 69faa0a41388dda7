// Package replica is one replica of a group as a step function: Raft, the lock
// table, the leases of sessions and the batching of requests.
//
// A [Replica] starts no goroutine, reads no clock and does no I/O. A shell calls
// Step with what arrived, then Turn, and carries out what Turn returns: messages
// to send, log to make durable, replies to deliver. Package node is that shell for
// real machines and package sim the one for simulated ones.
//
// A request is proposed, if it changes the lock table, or held for a quorum round, if its answer
// rests on this replica being the leader. Commands that come while an entry is under way share the
// next one; requests that come while a round is under way share the next one.
//
// # Invariants
//
//  1. Nothing is served before an entry of the own term is applied, and nothing after the
//     leadership ended: whoever waits then is told NotLeader.
//  2. A lease is renewed, a read answered, and the end of a session told only after a quorum confirmed
//     a round which this replica started as leader after the request came, in a term that it has led
//     without a break since.
//  3. A lease ends, by this replica's doing, no earlier than TTL + grace after its last renewal, and none
//     ends while a keepalive that is older than its end has not been handled.
//     While the end of a lease is written down, no keepalive of its session is answered.
//  4. Commands that this replica makes up carry its term and are void in another. Nothing is forwarded.
//  5. A stream is told the changes of its session in their order, those that it missed before Attached, and
//     all of them before the Kept that counts them.
//  6. Votes and acknowledgements leave after the writes that they rest on are durable, and writes are
//     handed out in the order in which Raft made them.
//  7. The same inputs and times give the same outputs, but for the election jitter that Raft draws
//     from crypto/rand.Reader.
//
// The file leadership.go is the place to start reading; drain.go has the way of an entry.
package replica
