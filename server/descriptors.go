package server

import "fmt"

const (
	// leastDescriptors is the minimum open file limit of a process.
	leastDescriptors = 1024

	// Descriptors reserved for everything except client connections: 256 files of Pebble, its logs,
	// snapshots, the audit log, their directories and the spare ones of package storage; streams,
	// snapshots and handshakes of peers, accepted and dialled; the health port; and those that any
	// process has, plus the connections to the leader and backups.
	storageDescriptors = 320
	peerDescriptors    = 192
	otherDescriptors   = 64
	keptDescriptors    = storageDescriptors + peerDescriptors + healthConnections + otherDescriptors

	// mostConnections bounds the client connections, whatever the open file limit.
	mostConnections = 65_536
)

// places is how many connections each port has room for.
type places struct{ clients, http, health int }

// FieldDescriptors is the field of a [ConfigError] that is not a field of Config: the open file
// limit of the process is too low.
const FieldDescriptors = "Descriptors"

// share divides the open file limit of a process among its nodes, and a node's share among its
// ports. A limit of 0 means not known.
func share(limit uint64, nodes int) (places, error) {
	if limit == 0 {
		return places{mostConnections, webConnections, healthConnections}, nil
	}
	if limit < leastDescriptors {
		return places{}, wrong(FieldDescriptors, "this process can open %d files, but needs at least %d: raise the limit (ulimit -n 65536; LimitNOFILE= in a systemd unit; --ulimit nofile= of docker run)", limit, leastDescriptors)
	}
	each := int(min(limit, 1<<30)) / nodes
	kept := keptDescriptors
	if nodes > 1 { // for development
		kept = min(kept, each/2)
	}
	free := each - kept
	p := places{http: min(webConnections, free/4), health: min(healthConnections, kept/4)}
	p.clients = min(mostConnections, free-p.http)
	return p, nil
}

// bound applies the configured limit.
func (c *Config) bound(p places) (places, error) {
	if c.Connections > p.clients {
		return p, wrong("Connections", "is %d, but the open file limit of this process allows %d: raise the limit (ulimit -n, LimitNOFILE) or reduce this value", c.Connections, p.clients)
	}
	if c.Connections > 0 {
		p.clients = c.Connections
	}
	return p, nil
}

func (p places) String() string {
	return fmt.Sprintf("clients %d, http %d, health %d", p.clients, p.http, p.health)
}
