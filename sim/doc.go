// Package sim runs whole clusters with their clients on one goroutine, from one seed.
//
// The replicas are package replica's, the sessions and leases of the clients are
// package session's and lease's, and every request passes through package
// protocol: what is simulated is only what surrounds them: network, disks,
// clocks, crashes, pauses, operators and the work of the clients. The oracles of package
// check watch each entry that a replica applies and each answer that a client
// hears.
//
// # A run
//
// [Run] draws a swarm of faults from the seed: each kind is on or off, at a rate of its
// own. The safety phase lasts for Options.Duration of simulated time. Then all faults stop,
// no new work begins, and the cluster must serve a new client within a bound, empty
// its queues and agree.
//
// # What others rely on
//
//  1. The same Options give the same trace hash in every process. Events of one time
//     happen in the order in which they were scheduled; every concern draws from a random
//     stream of its own, so that a change of one leaves the others as they were.
//  2. One simulation runs at a time in a process: Raft draws the jitter of its elections from
//     crypto/rand.Reader, which a run replaces. Run waits for its turn.
//  3. A run is bounded in simulated time, and the events of each second of it by maxEvents.
package sim
