// Package replica is one replica of a group as a step function: Raft, the lock
// table, the leases of sessions and the batching of requests.
//
// A [Replica] starts no goroutine, reads no clock and does no I/O. A shell calls
// Step with what arrived, then Turn, and carries out what Turn returns: messages
// to send, log to make durable, replies to deliver. Package node is that shell for
// real machines and package sim the one for simulated ones.
package replica
