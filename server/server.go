package server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-dev/lockstep/server/audit"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/service"
	"github.com/lockstep-dev/lockstep/server/storage"
)

// A Server is one node of a cluster. Create it with New, and run it once with Run.
type Server struct {
	cfg    Config
	places places
	tally  *tally
	trail  atomic.Pointer[audit.Log] // nil before Run, and without an audit log

	mu struct {
		sync.Mutex
		node      *node.Node // nil before Run has bound the ports
		addresses Addresses
	}
}

// Addresses are what the ports of a node are bound to, empty before that.
type Addresses struct{ Client, Peer, HTTP, Health string }

// New checks the configuration. It opens and starts nothing. An error is a [*ConfigError].
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	room, err := share(openLimit(), max(1, cfg.nodes))
	if err == nil {
		room, err = cfg.bound(room)
	}
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, places: room, tally: newTally()}, nil
}

// Used reports whether a node has used the data directory before. An error says why it cannot be
// read.
func Used(dataDir string) (bool, error) {
	_, used, err := storage.ReadOwner(vfs.Default, dataDir)
	return used, err
}

// Addresses returns what the ports are bound to. It may be called from any goroutine.
func (s *Server) Addresses() Addresses {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.addresses
}

// ReopenLogs checks at once whether another program has moved or truncated the audit log, and
// begins a new file in that case. A node checks every second and before each write anyway.
// ReopenLogs may be called from any goroutine.
func (s *Server) ReopenLogs() {
	if trail := s.trail.Load(); trail != nil {
		trail.Reopen()
	}
}

// Status returns the state of the node; the zero value before Run has bound the ports. It may be
// called from any goroutine.
func (s *Server) Status() node.Status {
	s.mu.Lock()
	n := s.mu.node
	s.mu.Unlock()
	if n == nil {
		return node.Status{}
	}
	return n.Status()
}

// Run binds the ports, opens the data directory and serves until ctx is done or the node cannot
// continue. When ctx is done, it hands leadership over, sends the clients away, stops, and returns
// nil.
func (s *Server) Run(ctx context.Context) error {
	ports, err := s.listen()
	if err != nil {
		return err
	}
	// From here on the parts own the listeners; each closes its own even if another cannot be made.
	defer ports.close()
	warnOfMemory(s.cfg.Logger, command.DefaultLimits(), memory())
	p, err := s.assemble(ports)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.mu.node, s.mu.addresses = p.node, ports.addresses()
	s.mu.Unlock()
	s.cfg.Logger.Info("listening", "node", s.cfg.Name, "client", ports.Client.Addr(), "peer", ports.Peer.Addr(), "http", ports.HTTP.Addr(),
		"health", ports.Health.Addr(), "connections", s.places.String(), "open_files", openLimit())
	return p.run(ctx)
}

// listen binds the ports that were not given.
func (s *Server) listen() (Listeners, error) {
	ls := s.cfg.Listeners
	for i, slot := range []*net.Listener{&ls.Client, &ls.Peer, &ls.HTTP, &ls.Health} {
		if *slot != nil {
			continue
		}
		p := s.cfg.ports()[i]
		l, err := net.Listen("tcp", p.address)
		if err != nil {
			ls.close()
			if p.field == "HealthListen" { // usually nobody has chosen it
				err = fmt.Errorf("%w: choose another port for health checks and metrics with --health-listen", err)
			}
			return Listeners{}, fmt.Errorf("server: %s: %w", p.field, err)
		}
		*slot = l
	}
	return ls, nil
}

// close closes all listeners; closing one twice does no harm.
func (l Listeners) close() {
	for _, one := range []net.Listener{l.Client, l.Peer, l.HTTP, l.Health} {
		if one != nil {
			_ = one.Close() // nothing was written to it that could be lost
		}
	}
}

func (l Listeners) addresses() Addresses {
	return Addresses{Client: l.Client.Addr().String(), Peer: l.Peer.Addr().String(), HTTP: l.HTTP.Addr().String(), Health: l.Health.Addr().String()}
}

// parts are what a running server is made of.
type parts struct {
	cfg     Config
	node    *node.Node
	service *service.Service
	webs    []*web     // of the JSON API, and of health
	audit   *audit.Log // nil: there is no audit log
}

func (s *Server) assemble(ports Listeners) (*parts, error) {
	cfg := s.cfg
	fallback(&cfg.AdvertiseClient, ports.Client.Addr().String())
	fallback(&cfg.AdvertisePeer, ports.Peer.Addr().String())
	if err := checkReachable("AdvertiseClient", cfg.AdvertiseClient); err != nil {
		return nil, err
	}
	if len(cfg.InitialCluster) == 0 {
		cfg.InitialCluster = map[string]string{cfg.Name: cfg.AdvertisePeer}
		if err := cfg.checkCluster(); err != nil {
			return nil, err
		}
	}
	owner, _, err := storage.ReadOwner(vfs.Default, cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	var n *node.Node
	trail, err := newAudit(&cfg, func() *node.Node { return n })
	if err != nil {
		return nil, err
	}
	s.tally.audit = trail
	s.trail.Store(trail)
	feed, secrets := service.NewFeed(), cfg.secrets()
	n, err = node.New(node.Config{
		Origin:        owner.Origin,
		TokenFloor:    command.Token(cfg.TokenFloor),
		Name:          cfg.Name,
		DataDir:       cfg.DataDir,
		Members:       cfg.InitialCluster,
		Missing:       cfg.InitialMissing,
		Join:          cfg.Join,
		ClientAddress: cfg.AdvertiseClient,
		Listener:      ports.Peer,
		Secrets:       secrets,

		SessionsPerAddress: cfg.SessionsPerAddress,
		Zone:               cfg.Zone, LeaderZone: cfg.LeaderZone,

		Built:   command.WallMillis(max(0, cfg.Built.UnixMilli())),
		Events:  func(list []command.Event) { s.tally.count(list); feed.Add(list) },
		Opened:  opener(trail, func() string { return n.Status().ClusterID }),
		Loaded:  loader(trail),
		Audit:   answerer(trail),
		Applied: s.tally.applied,
		Replied: s.tally.replied,
		Synced:  s.tally.synced,
		Logger:  cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	svc, err := service.New(service.Config{
		Node: n, Feed: feed, Listener: ports.Client, ClusterSecrets: secrets,
		Refused: s.tally.refusedBefore, Version: cfg.Version, Logger: cfg.Logger,
		Limits: service.Limits{Connections: s.places.clients, ConnectionsPerAddress: cfg.ConnectionsPerAddress, WatchesPerConnection: cfg.WatchesPerConnection},
	})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return &parts{cfg: cfg, node: n, service: svc, webs: s.webs(&cfg, ports, n, svc), audit: trail}, nil
}

// webs makes the HTTP ports.
func (s *Server) webs(cfg *Config, ports Listeners, n *node.Node, svc *service.Service) []*web {
	api := service.NewPort(ports.HTTP, service.Bounds{Connections: s.places.http, PerAddress: cfg.ConnectionsPerAddress}, cfg.Logger)
	health := service.NewPort(ports.Health, service.Bounds{Connections: s.places.health}, cfg.Logger)
	s.tally.ports = portCollector{"client": svc.Port(), "http": api, "health": health}
	s.tally.unread = svc.Unread
	metrics := registry(n, s.tally, cfg.DataDir)
	paths, hosts := healthPaths(n, cfg.DataDir, metrics), ownHosts(*cfg)
	w := newHTTP(hosts, api, paths, cfg.Logger)
	w.local = svc.DialLocal
	return []*web{w, newHealth(hosts, health, paths, cfg.Logger)}
}

// run runs the parts. They do not end with ctx but one after the other: the clients keep their
// leader until it has handed over, and the node serves until they are gone.
func (p *parts) run(ctx context.Context) error {
	g, alive := errgroup.WithContext(context.WithoutCancel(ctx))
	nodeCtx, stopNode := context.WithCancel(alive)
	frontCtx, stopFront := context.WithCancel(alive)
	defer stopNode()
	defer stopFront()

	var front sync.WaitGroup
	serve := func(part func(context.Context) error) {
		front.Add(1)
		g.Go(func() error {
			defer front.Done()
			return part(frontCtx)
		})
	}
	serve(p.service.Run)
	for _, w := range p.webs {
		serve(w.run)
	}
	auditCtx, stopAudit := context.WithCancel(context.WithoutCancel(ctx))
	if p.audit != nil {
		g.Go(func() error { return p.audit.Run(auditCtx) })
	}
	g.Go(func() error {
		defer stopAudit() // the node gives it events until the end
		if err := p.node.Run(nodeCtx); err != nil {
			return fmt.Errorf("server: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		select {
		case <-alive.Done(): // a part failed, and the others were cancelled
			return nil
		case <-ctx.Done():
		}
		p.cfg.Logger.Info("stopping")
		p.handOver(alive)
		stopFront()
		front.Wait()
		stopNode()
		return nil
	})
	return g.Wait()
}

// handOver transfers leadership, so that the others need not first time out, and waits until the
// new leader is known, so that clients can be told.
func (p *parts) handOver(ctx context.Context) {
	if len(p.node.Status().Replica.Voters) <= 1 {
		return // there is no other voter
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.StopTimeout)
	defer cancel()
	if err := p.node.HandOver(ctx); err != nil {
		p.cfg.Logger.Warn("leadership was not handed over; the others will elect a leader after a timeout", "error", err)
		return
	}
	tick := time.NewTicker(handOverPoll)
	defer tick.Stop()
	for range handOverPatience / handOverPoll {
		if st := p.node.Status(); st.Role == node.Follower && st.Leader != 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const (
	// handOverPatience is how long a node that has transferred leadership waits to learn of its
	// successor. It takes some milliseconds, unless the handover has failed.
	handOverPatience = 500 * time.Millisecond
	handOverPoll     = 5 * time.Millisecond
)
