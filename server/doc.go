// Package server is a node of a Lockstep cluster as a library: storage, consensus, the gRPC API and
// a small HTTP port, wired together.
//
// [New] checks a [Config] and starts nothing; [Server.Run] serves until its context is done and
// then shuts down gracefully: leadership is handed over, clients are sent away, and everything that
// it started has ended when it returns. Several servers can run in one process; [Cluster] does
// that.
//
// # Ports
//
//   - Clients speak gRPC: lockstep.v1, health and reflection.
//   - Peers speak a protocol of their own.
//   - HTTP has the JSON API below /v1/, and /livez, /readyz, /metrics and /debug/pprof/.
//
// There is no access control yet: anyone who can reach a port has full access to it. So ports are
// bound only to loopback addresses, unless Config.Insecure is set.
package server
