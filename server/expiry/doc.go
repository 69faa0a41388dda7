// Package expiry keeps the leader's deadlines: a clock that runs only while the leader is healthy,
// and sets of deadlines on it.
//
// When a leader that was paused, starved or cut off from its peers wakes up, the leases of all its
// clients have run out by the wall clock, while their keepalives lie unread in its buffers. It must
// not end those sessions. So deadlines live on a [Clock] that credits real time only in small
// steps, only while quorum rounds succeed, and never beyond the arrival of a keepalive that has not
// been handled yet. What is not credited is dropped, never made up.
//
// # Invariants
//
//  1. A Clock never runs ahead of real time: a deadline d after now passes no earlier than d of
//     real time later.
//  2. A Clock never goes back.
//  3. Deadlines come out in order of their time, and equal ones in the order in which they were
//     set.
package expiry
