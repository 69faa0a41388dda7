package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-dev/lockstep/server/service"
)

// A ClusterConfig configures NewCluster. DataDir has no default.
type ClusterConfig struct {
	// Nodes is the number of nodes, 1 to 9. They are called n1, n2 and so on. Default: 3.
	Nodes int
	// DataDir holds a directory for each node, with the node's name.
	DataDir string
	// Port is the first port: node i listens for clients on Port + 10 (i - 1), for peers on the
	// next port, for the JSON API on the one after that, and for health and metrics on the fourth,
	// all on 127.0.0.1. Zero picks free ports; such a cluster cannot be started again from its
	// directories, since the peer addresses are its identity.
	Port int
	// OnReady, if set, is called once, when a lock can be granted and every node knows the leader.
	// It gets the addresses for clients in the order of the nodes.
	OnReady func(endpoints []string)
	// Version, Built and Logger are used for each node.
	Version string
	Built   time.Time
	Logger  *slog.Logger
}

// portsPerNode is the distance between the ports of two nodes of a Cluster.
const portsPerNode = 10

// A Cluster is several nodes in one process, for development and tests. Each has its own directory
// and ports, and they communicate over the network like nodes on separate machines, but a crash of
// the process takes down all of them.
type Cluster struct{ cfg ClusterConfig }

// NewCluster checks the configuration. It opens and starts nothing. An error is a [*ConfigError].
func NewCluster(cfg ClusterConfig) (*Cluster, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	last := cfg.Port + portsPerNode*(cfg.Nodes-1) + 3
	switch {
	case cfg.Nodes < 1 || cfg.Nodes > MaxNodes:
		return nil, wrong("Nodes", "is %d, must be 1 to %d", cfg.Nodes, MaxNodes)
	case cfg.DataDir == "":
		return nil, wrong("DataDir", "must not be empty")
	case cfg.Port < 0 || last > 65535:
		return nil, wrong("Port", "is %d, which makes %d the last port: must be 0 to 65535", cfg.Port, last)
	}
	return &Cluster{cfg: cfg}, nil
}

// Run runs all nodes until ctx is done or one of them cannot continue. It returns nil after ctx is
// done.
func (c *Cluster) Run(ctx context.Context) error {
	servers, endpoints, err := c.assemble()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range servers {
		g.Go(func() error { return s.Run(ctx) })
	}
	g.Go(func() error {
		if waitReady(ctx, servers) && c.cfg.OnReady != nil {
			c.cfg.OnReady(endpoints)
		}
		return nil
	})
	return g.Wait()
}

// assemble binds all ports first, since the nodes must know each other's.
func (c *Cluster) assemble() (servers []*Server, endpoints []string, err error) {
	ports := make([]Listeners, c.cfg.Nodes)
	defer func() {
		if err != nil {
			for _, p := range ports {
				p.close()
			}
		}
	}()
	members := map[string]string{}
	for i := range ports {
		if ports[i], err = c.listen(i); err != nil {
			return nil, nil, err
		}
		members[nameOf(i)] = ports[i].Peer.Addr().String()
		endpoints = append(endpoints, ports[i].Client.Addr().String())
	}
	// Nodes of other processes are not let in, and an earlier process's secret is useless in this
	// one.
	secret := rand.Text() + rand.Text()
	for i := range ports {
		s, err := New(Config{
			Name:           nameOf(i),
			DataDir:        filepath.Join(c.cfg.DataDir, nameOf(i)),
			Listeners:      ports[i],
			InitialCluster: members,
			ClusterSecret:  secret,
			Version:        c.cfg.Version,
			nodes:          c.cfg.Nodes,
			Built:          c.cfg.Built,
			Logger:         c.cfg.Logger.With("node", nameOf(i)),
		})
		if err != nil {
			return nil, nil, err
		}
		servers = append(servers, s)
	}
	return servers, endpoints, nil
}

func nameOf(i int) string { return "n" + strconv.Itoa(i+1) }

// listen binds the ports of node i.
func (c *Cluster) listen(i int) (ls Listeners, err error) {
	for j, slot := range []*net.Listener{&ls.Client, &ls.Peer, &ls.HTTP, &ls.Health} {
		p := 0
		if c.cfg.Port != 0 {
			p = c.cfg.Port + portsPerNode*i + j
		}
		if *slot, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p))); err != nil {
			ls.close()
			return Listeners{}, fmt.Errorf("server: node %s: %w", nameOf(i), err)
		}
	}
	return ls, nil
}

// waitReady returns true when all servers are ready, false when ctx is done first.
func waitReady(ctx context.Context, servers []*Server) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ready := true
		for _, s := range servers {
			st := s.Status()
			ready = ready && service.Ready(st) && st.LeaderClientAddress != "" && st.Counts.NextToken != 0
		}
		if ready {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}
