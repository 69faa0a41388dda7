package server

import "fmt"

const (
	// leastDescriptors is how many files a process has to be allowed to open.
	leastDescriptors = 1024

	// What is kept from the connections: 256 files of Pebble, its logs, snapshots, the audit log, their
	// directories and the spare ones of package storage; streams, snapshots and handshakes of peers, accepted and dialled; the
	// health port; and what a process has anyway, with the connections to the leader and backups.
	storageDescriptors = 320
	peerDescriptors    = 192
	otherDescriptors   = 64
	keptDescriptors    = storageDescriptors + peerDescriptors + healthConnections + otherDescriptors

	// mostConnections bounds the connections of clients, whatever the process may open.
	mostConnections = 65_536
)

// places are how many connections each port has room for.
type places struct{ clients, http, health int }

// FieldDescriptors is the field of a [ConfigError] that no field of a Config changes: the process may open too few files.
const FieldDescriptors = "Descriptors"

// share divides the files that a process may open among its nodes, and those of a node among its ports. limit 0 is not known.
func share(limit uint64, nodes int) (places, error) {
	if limit == 0 {
		return places{mostConnections, webConnections, healthConnections}, nil
	}
	if limit < leastDescriptors {
		return places{}, wrong(FieldDescriptors, "this process may open %d files, and needs at least %d: raise the limit (ulimit -n 65536; LimitNOFILE= in a systemd unit; --ulimit nofile= of docker run)", limit, leastDescriptors)
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

// bound applies what the configuration asks for.
func (c *Config) bound(p places) (places, error) {
	if c.Connections > p.clients {
		return p, wrong("Connections", "is %d, but the files that this process may open leave room for %d: raise the limit (ulimit -n, LimitNOFILE) or give less", c.Connections, p.clients)
	}
	if c.Connections > 0 {
		p.clients = c.Connections
	}
	return p, nil
}

func (p places) String() string {
	return fmt.Sprintf("clients %d, http %d, health %d", p.clients, p.http, p.health)
}
