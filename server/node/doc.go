// Package node runs one replica on a real machine: it gives the step function of package
// replica its clock, its disk and its network.
//
// One goroutine, the loop, owns the replica. Everything that arrives (requests,
// messages of peers, finished writes) goes through one inbox that the loop drains
// whole before each turn, so one wake-up serves all that came meanwhile. A second
// goroutine, the disk, makes the log durable: what queued during one sync is the next
// one's batch, and responses go out only after it. Snapshots are written, sent and
// received by goroutines of their own, never by those two.
//
// A Node ends with an error, and the process has to end with it, when a write or
// sync fails, when the disk takes longer than 10 s, and when the
// state has diverged: carrying on could break a promise.
package node
