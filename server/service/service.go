package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// A Node is what the service needs of [node.Node], which documents the methods. All are safe for
// concurrent use.
type Node interface {
	Connect(deliver func([]lead.Reply)) lead.StreamID
	Disconnect(lead.StreamID)
	Submit([]lead.Request) error
	Now() lead.Time
	Status() node.Status
	HandOverTo(ctx context.Context, to uint64) error
}

// A Config configures New.
type Config struct {
	// Node answers the requests. Required.
	Node Node
	// Listener accepts the clients' connections. Required. Run closes it.
	Listener net.Listener
	// Credentials secure the connections. Default: plain TCP.
	Credentials credentials.TransportCredentials
	// Feed has the events for Watch; the node must add them. Default: none, and Watch is refused.
	Feed *Feed
	// LeaderCredentials secure the connection to the leader, to which calls are forwarded. Default:
	// plain TCP.
	LeaderCredentials credentials.TransportCredentials
	// ClusterSecrets returns the secrets that the nodes of the cluster share. A node that forwards
	// a call proves with the first one whose call it is; all non-empty ones are accepted. Default:
	// none, and forwarded calls count for the node that forwards them.
	ClusterSecrets func() [][]byte
	// Limits bound what clients may use. Zero fields have defaults.
	Limits Limits
	// Refused is called for each request that is refused before it reaches the node, from any
	// goroutine. Default: none.
	Refused func(pb.Reason)
	// Version is the version of the binary that Status reports.
	Version string
	// Rand is the source of session secrets. Default: [crypto/rand.Reader].
	Rand io.Reader
	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

// Limits bound what clients may use of a node.
type Limits struct {
	// Connections is the maximum number at one time; see [Port]. Default: 65,536.
	Connections int
	// ConnectionsPerAddress is the maximum for one address; see [Bounds]. Default: half of
	// Connections.
	ConnectionsPerAddress int
	// StreamsPerConnection limits the streams and calls of one connection at one time; more wait on
	// the client's side. The session stream is one of them. Default: 1,024, as many as HTTP
	// requests, which all come on one connection.
	StreamsPerConnection uint32
	// RequestsPerSecond limits one connection, with bursts of the same size. Above it, new claims,
	// sessions and reads are answered OVERLOADED, and the connection is read more slowly. Default:
	// 100,000.
	RequestsPerSecond int
	// ReadsPerSecond limits the reads of one connection, with bursts of the same size; further
	// reads wait for their turn, at most one second. Default: 1,000.
	ReadsPerSecond int
	// QueuedReplies limits what waits to be sent on one stream. A client that reads so slowly that
	// it is exceeded is dropped. A reply that names many holders counts for up to five. Default:
	// 65,536, some 16 to 32 MiB.
	QueuedReplies int
	// UnreadBytesPerConnection and UnreadBytes bound the answers of one connection, and of all of the
	// node, that their clients have not taken yet; one address may have half of UnreadBytes. Above
	// them reads are refused with OVERLOADED, above UnreadBytes only those of connections with more
	// than 256 KiB. Defaults: 8 MiB and 256 MiB.
	UnreadBytesPerConnection, UnreadBytes int64
	// Untaken is how long a client may leave a message of a stream, or more than 64 KiB of other
	// answers, untaken before its connection is ended. Default: 10 s.
	Untaken time.Duration
	// WatchesPerConnection bounds the watches of one connection; all of a node have 1,024, half of
	// them over HTTP, and one address half of either. Default: 16.
	WatchesPerConnection int
	// Drain is how long calls have to finish when the service stops. Default: 2 s.
	Drain time.Duration
}

func (l Limits) withDefaults() Limits {
	fallback(&l.Connections, 65_536)
	fallback(&l.StreamsPerConnection, 1_024)
	fallback(&l.RequestsPerSecond, 100_000)
	fallback(&l.QueuedReplies, 65_536)
	fallback(&l.UnreadBytesPerConnection, 8<<20)
	fallback(&l.UnreadBytes, 256<<20)
	fallback(&l.ReadsPerSecond, 1_000)
	fallback(&l.Untaken, 10*time.Second)
	fallback(&l.WatchesPerConnection, 16)
	fallback(&l.Drain, 2*time.Second)
	return l
}

func fallback[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.ClusterSecrets == nil {
		c.ClusterSecrets = func() [][]byte { return nil }
	}
	if c.Refused == nil {
		c.Refused = func(pb.Reason) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch l := c.Limits; {
	case c.Node == nil:
		return errors.New("service: Config.Node is missing")
	case c.Listener == nil:
		return errors.New("service: Config.Listener is missing")
	case l.Connections < 0 || l.ConnectionsPerAddress < 0 || l.RequestsPerSecond < 0 || l.ReadsPerSecond < 0 || l.QueuedReplies < 0 || l.Drain < 0 ||
		l.UnreadBytesPerConnection < 0 || l.UnreadBytes < 0 || l.Untaken < 0 || l.WatchesPerConnection < 0:
		return fmt.Errorf("service: Config.Limits must not be negative: %+v", l)
	}
	return nil
}

// Keepalive on the connection level. A peer that disappears silently is noticed after pingAfter +
// pingTimeout of silence; its sessions live or die by their TTL in any case.
const (
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
	// minClientPing is how often a client may ping, with or without a stream; one that pings more
	// often is disconnected.
	minClientPing = time.Second
	// maxHeaderBytes limits the headers of a call, of which gRPC would otherwise keep 16 MiB for
	// each stream. Ours have some hundred bytes.
	maxHeaderBytes = 16 << 10
	// handshakeTimeout limits the time from the connection to its first settings, including TLS.
	handshakeTimeout = 10 * time.Second
)

// A Service is the gRPC server of one node. Create it with New, and run it once with Run.
type Service struct {
	pb.UnimplementedLockServiceServer
	pb.UnimplementedAdminServiceServer

	cfg     Config
	log     *slog.Logger
	trouble *quiet // for what clients can cause at will
	port    *Port
	grpc    *grpc.Server
	health  *health.Server
	herald  *herald
	saving  sync.Mutex // held while a backup is streamed

	forwarder *forwarder
	watches   *watches
	unread    ledger
	own       *account          // for calls from this process
	local     *bufconn.Listener // for calls from this process

	// stopping is closed when the service begins to drain: every stream and waiting call then ends.
	stopping chan struct{}
	// readers are those of streams, and of abandoned calls: each ends soon after its stream or
	// call.
	readers sync.WaitGroup
}

// New makes a service. It starts nothing.
func New(cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{
		cfg:      cfg,
		log:      cfg.Logger,
		trouble:  newQuiet(cfg.Logger),
		health:   health.NewServer(),
		herald:   newHerald(),
		stopping: make(chan struct{}),

		forwarder: newForwarder(cfg),
		local:     bufconn.Listen(localBuffer),
		watches:   newWatches(cfg.Limits.WatchesPerConnection),
	}
	s.port = newPort(cfg.Listener, Bounds{cfg.Limits.Connections, cfg.Limits.ConnectionsPerAddress}, cfg.Limits.RequestsPerSecond, s.trouble)
	s.unread.limit, s.unread.timeout = cfg.Limits.UnreadBytes, cfg.Limits.Untaken
	s.own = newAccount(&s.unread, cfg.Limits.UnreadBytes, nil)
	s.port.open = func(end func()) *account {
		a := newAccount(&s.unread, cfg.Limits.UnreadBytesPerConnection, end)
		a.reads = newMeter(cfg.Limits.ReadsPerSecond)
		return a
	}
	s.grpc = grpc.NewServer(append(options(cfg), grpc.ChainUnaryInterceptor(s.noteClient, s.chargeUnary, s.pinUnary, s.route), grpc.ChainStreamInterceptor(s.chargeStream, s.pinStream))...)
	s.grpc.RegisterService(checked(pb.LockService_ServiceDesc), s)
	s.grpc.RegisterService(checked(pb.AdminService_ServiceDesc), s)
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.setHealth(false)
	return s, nil
}

func options(cfg Config) []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(protocol.MaxFrameBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(cfg.Limits.StreamsPerConnection),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		// With the default read buffer of 32 KiB, 50,000 mostly idle connections would need 1.6 GiB
		// for those buffers alone. In total, a connection with a stream costs 50 KiB.
		grpc.ReadBufferSize(8 << 10),
	}
	if cfg.Credentials != nil {
		opts = append(opts, grpc.Creds(cfg.Credentials))
	}
	return opts
}

// Port returns the port where clients connect.
func (s *Service) Port() *Port { return s.port }

// Run serves until ctx is done or the listener fails. It then ends all streams and waiting calls,
// with NOT_LEADER if another node is known to lead and with UNAVAILABLE if not, gives the other
// calls Limits.Drain to finish, and returns when the last handler has returned. It returns nil
// after ctx is done. A Service runs once.
func (s *Service) Run(ctx context.Context) error {
	served := make(chan error, 2)
	go func() { served <- s.grpc.Serve(s.local) }()
	go func() {
		served <- s.grpc.Serve(s.port)
	}()
	err := s.followHealth(ctx, served)
	s.drain()
	if err != nil {
		return fmt.Errorf("service: %w", err)
	}
	return nil
}

// drain ends everything. It takes at most Limits.Drain, plus what handlers need to notice.
func (s *Service) drain() {
	s.health.Shutdown()
	close(s.stopping)
	s.forwarder.close()
	impatient := time.AfterFunc(s.cfg.Limits.Drain, s.grpc.Stop)
	defer impatient.Stop()
	s.grpc.GracefulStop()
	s.readers.Wait()
}
