package service

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// hopKey marks a call that a node has forwarded, with that node's name. Such a call is never
// forwarded again: two nodes that each take the other for the leader would send it back and forth.
const hopKey = "lockstep-forwarded-by"

// A forwarder forwards unary calls to the leader. Acquire calls, which wait, have a connection of
// their own, so that they cannot hold up the others.
type forwarder struct {
	credentials credentials.TransportCredentials

	waiting, quick lane

	mu struct {
		sync.Mutex
		closed bool
	}
}

// A lane is one connection to the leader, and the calls in progress on it.
type lane struct {
	limit int // of the calls; the clients at one address have half

	mu struct {
		sync.Mutex
		address string
		conn    *grpc.ClientConn
		calls   int
		from    map[string]int // calls by the address of their clients
	}
}

func newForwarder(cfg Config) *forwarder {
	f := &forwarder{credentials: cfg.LeaderCredentials}
	for _, l := range []*lane{&f.waiting, &f.quick} {
		l.limit, l.mu.from = int(cfg.Limits.StreamsPerConnection), make(map[string]int)
	}
	if f.credentials == nil {
		f.credentials = insecure.NewCredentials()
	}
	return f
}

// staysHere are the unary calls that every node answers itself.
var staysHere = map[string]bool{pb.AdminService_Status_FullMethodName: true}

// givesBack are the calls that are let through above a connection's rate: they keep, give back or
// end what exists.
var givesBack = map[string]bool{
	pb.LockService_KeepAlive_FullMethodName:    true,
	pb.LockService_Release_FullMethodName:      true,
	pb.LockService_Cancel_FullMethodName:       true,
	pb.LockService_CloseSession_FullMethodName: true,
}

// route serves a unary call. An Acquire that waits survives changes of leader.
func (s *Service) route(ctx context.Context, req any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	if outlivesLeader(ctx, req) {
		return s.acquire(ctx, req, info, serve)
	}
	return s.routeOnce(ctx, req, info, serve)
}

// routeOnce serves a unary call here, or forwards it if another node is known to lead. A call that
// cannot be forwarded is served here, where it is refused.
func (s *Service) routeOnce(ctx context.Context, req any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	if !strings.HasPrefix(info.FullMethod, "/lockstep.v1.") || staysHere[info.FullMethod] || passedOn(ctx) ||
		s.cfg.Node.Status().Role == node.Leader {
		return serve(ctx, req)
	}
	st := s.settle(ctx)
	if st.Role == node.Leader || st.Leader == st.ID || st.LeaderClientAddress == "" {
		return serve(ctx, req)
	}
	if err := s.admitForward(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return s.forward(ctx, st, info.FullMethod, req.(proto.Message))
}

func passedOn(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, hopKey)) > 0
}

// admitForward enforces a connection's rate limit, as admit does for calls served here.
func (s *Service) admitForward(ctx context.Context, method string) error {
	pause := s.meterOf(ctx).take(time.Now(), 1)
	switch {
	case pause > 0 && !givesBack[method]:
		return protocol.Err(overloaded())
	case !sleep(ctx, pause):
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// forward makes the call at the leader, with the deadline of ctx. Errors from the leader are passed
// through.
func (s *Service) forward(ctx context.Context, st node.Status, method string, req proto.Message) (any, error) {
	l := s.forwarder.lane(method)
	from := s.origin(ctx).Address
	if e := l.enter(from); e != nil {
		return nil, s.refuse(e)
	}
	defer l.leave(from)
	conn, err := s.forwarder.connect(l, st.LeaderClientAddress)
	if err != nil {
		return nil, s.leaderLost(st, false)
	}
	if r, ok := req.(*pb.RevokeRequest); ok && r.GetBy() == "" {
		r.By = remote(ctx) // the leader sees this node's address
	}
	resp := responseOf(method)
	md := toLeader(st)
	if sealed := s.seal(remote(ctx)); sealed != "" {
		md.Set(clientKey, sealed)
	}
	out := metadata.NewOutgoingContext(ctx, md)
	var reached peer.Peer // stays empty when the call was never sent
	err = conn.Invoke(out, method, req, resp, grpc.Peer(&reached))
	switch code := status.Code(err); {
	case err == nil:
		return resp, nil
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case protocol.FromErr(err) == nil && (code == codes.Unavailable || code == codes.Canceled),
		protocol.FromErr(err).GetReason() == pb.Reason_REASON_WRONG_CLUSTER:
		// WRONG_CLUSTER: the address now belongs to another cluster's node.
		return nil, s.leaderLost(st, reached.Addr != nil)
	}
	return nil, err
}

// toLeader returns the metadata of a forwarded call. The leader's address may by now belong to a
// node of another cluster.
func toLeader(st node.Status) metadata.MD {
	md := metadata.Pairs(hopKey, st.Name)
	if st.ClusterID != "" {
		md.Set(protocol.ClusterKey, st.ClusterID)
	}
	return md
}

// leaderLost returns the error of a call whose connection to the leader failed. A call that was
// sent may still take effect.
func (s *Service) leaderLost(st node.Status, sent bool) error {
	e := goingDown()
	select {
	case <-s.stopping:
		if now := s.cfg.Node.Status(); now.Role != node.Leader && settled(now) {
			e = notLeader(now)
		}
	default:
		e = notLeader(st)
		e.Message += ", which does not respond"
	}
	e.Uncertain = sent
	return protocol.Err(e)
}

func (f *forwarder) lane(method string) *lane {
	if method == pb.LockService_Acquire_FullMethodName {
		return &f.waiting
	}
	return &f.quick
}

// enter takes a place for a call of a client at an address, which is empty for this process, or
// says why there is none.
func (l *lane) enter(from string) *pb.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	half := max(1, l.limit/2)
	switch {
	case from != "" && l.mu.from[from] >= half:
		return tooManyForwarded("of clients at "+from+" ", half)
	case l.mu.calls >= l.limit:
		return tooManyForwarded("", l.limit)
	}
	l.mu.calls++
	l.mu.from[from]++
	return nil
}

// leave gives the place back.
func (l *lane) leave(from string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.calls--
	less(l.mu.from, from)
}

func tooManyForwarded(whose string, limit int) *pb.Error {
	return protocol.FromRefused(lead.Refused{
		Reason: lead.Overloaded,
		Limit:  fmt.Sprintf("calls %sthat this node forwards at one time: at most %d", whose, limit),
	})
}

// connect returns the connection of the lane to the leader. It closes one to another address: calls
// on it end, because that node has lost leadership.
func (f *forwarder) connect(l *lane, address string) (*grpc.ClientConn, error) {
	f.mu.Lock() // held until the connection is in its lane, so that close finds it
	defer f.mu.Unlock()
	if f.mu.closed {
		return nil, node.ErrStopped
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.conn != nil && l.mu.address == address {
		return l.mu.conn, nil
	}
	l.closeLocked()
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(f.credentials), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: leaderDialTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: leaderPing, Timeout: leaderPing}))
	if err != nil {
		return nil, err
	}
	l.mu.conn, l.mu.address = conn, address
	return conn, nil
}

const (
	// leaderDialTimeout bounds one attempt to reach the leader.
	leaderDialTimeout = 2 * time.Second
	// leaderPing is how long the leader may be silent before it is pinged, and how long it has to
	// answer.
	leaderPing = 10 * time.Second
)

// closeLocked closes the connection, if there is one. l.mu must be held.
func (l *lane) closeLocked() {
	if l.mu.conn != nil {
		_ = l.mu.conn.Close() // fails only if it is already closed
		l.mu.conn = nil
	}
}

// close ends the calls in progress; nothing is forwarded any longer.
func (f *forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.closed = true
	for _, l := range []*lane{&f.waiting, &f.quick} {
		l.mu.Lock()
		l.closeLocked()
		l.mu.Unlock()
	}
}

// responseOf returns an empty response of one of our methods.
func responseOf(method string) proto.Message {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		panic("service: " + err.Error()) // gRPC has already found the method
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
	if err != nil {
		panic("service: " + err.Error())
	}
	return t.New().Interface()
}
