// Package sim runs whole clusters with their clients on one goroutine, from one seed.
//
// The replicas are those of packages replica and lead, the sessions and leases of the clients those
// of packages session and lease, and every request passes through package protocol. Only what
// surrounds them is simulated: network, disks, clocks, crashes, pauses, operators and the work of
// the clients. The oracles of package check observe each entry that a replica applies and each
// answer that a client receives.
//
// # A run
//
// [Run] draws a swarm of faults from the seed: each kind is on or off, at a rate of its own. The
// safety phase lasts for Options.Duration of simulated time. Then all faults stop, no new work
// begins, and the cluster must serve a new client within a bound, empty its queues and agree.
//
// # What others rely on
//
//  1. The same Options give the same trace hash in every process. Events with the same time happen
//     in the order in which they were scheduled; every concern draws from its own random stream,
//     so that changing one leaves the others as they were.
//  2. Only one simulation runs at a time in a process: Raft draws the jitter of its elections from
//     crypto/rand.Reader, which a run replaces. Run waits for its turn.
//  3. A run is bounded in simulated time, and the number of events in each second of it by
//     maxEvents.
package sim
