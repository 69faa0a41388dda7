// Package server is a node of a Lockstep cluster as a library: storage, consensus, the gRPC
// API and a small HTTP port, wired together.
//
// [New] checks a [Config] and starts nothing; [Server.Run] serves until its context is
// done and then stops in an orderly way: leadership is handed over, clients are sent
// away, and everything that it started has ended when it returns. Nothing is global: several
// servers run in one process, which is what [Cluster] is for.
//
// # Ports
//
//   - Clients talk gRPC: lockstep.v1, health and reflection.
//   - Peers talk to each other in a protocol of their own.
//   - HTTP has /livez, /readyz, /metrics and /debug/pprof/.
//
// There are no rights yet: whoever reaches a port may use all of it. So ports are bound to
// loopback addresses only, unless Config.Insecure says otherwise.
package server
