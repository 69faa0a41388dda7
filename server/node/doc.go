// Package node runs one replica on a real machine: it gives the step function of package replica
// its clock, its disk and its network.
//
// One goroutine, the loop, owns the replica. Everything that arrives (requests, messages from
// peers, completed writes) goes through one inbox, which the loop empties before each turn, so one
// wake-up serves everything that arrived meanwhile. A second goroutine, the disk, makes the log
// durable: what is queued during one sync is written as the next batch, and responses go out only
// after it. Snapshots are written, sent and received by goroutines of their own, never by those
// two.
//
// A Node ends with an error, and the process must end with it, when a write or sync fails, when the
// disk takes longer than 10 s, and when the state has diverged: continuing could break a guarantee.
package node
