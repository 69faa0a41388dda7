// Package lead is what the leader of a group does for clients: their streams, quorum rounds, the
// queue of proposals, leases and other timers, and what is answered to whom.
//
// A [Lead] knows the lock table (package machine) and the deadlines (package expiry), and nothing
// of Raft. Its replica gives it the time, requests, applied entries and confirmed rounds; it asks
// for what it needs through [Group], and its replies are taken with Replies. Like the replica it
// starts no goroutine, reads no clock and does no I/O. A group has one Lead; its replica starts a
// leadership in it with Start and ends it with Depose.
//
// A request is proposed if it changes the lock table, or held for a quorum round if its answer
// depends on this replica being the leader. Commands that arrive while an entry is in flight share
// the next one; requests that arrive while a round is open share the next one.
//
// # Invariants
//
//  1. Nothing is served before an entry of the leadership's own term is applied, and nothing after
//     Depose: requests that are still waiting are refused with NotLeader.
//  2. A lease is renewed, a read answered, and the end of a session reported only after a quorum
//     confirmed a round that was started after the request arrived, in the same leadership.
//  3. A lease ends no earlier than TTL + grace after its last renewal, and never while a keepalive
//     that is older than that end has not been handled. While the end of a lease is recorded in the
//     log, no keepalive of its session is answered.
//  4. Commands that the leader makes up carry its term and are void in another.
//  5. A stream gets the changes of its session in order: those that it missed before Attached, and
//     all of them before the Kept that counts them.
//  6. The same inputs and times give the same outputs.
//
// Start reading in lead.go; serve.go follows a request, deliver.go an applied entry.
package lead
