package wirefake

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// A Cluster is one Service served by several nodes, one of which is the leader. It times leases by
// the real clock.
type Cluster struct {
	mu       sync.Mutex
	service  *Service
	leader   string // its address; empty = no leader
	streams  map[int]*stream
	lastID   int
	deadline map[string]time.Time
	frames   int // received
	requests int // received
	breaking error
	id       string
	named    []string // ids that requests named
}

// clusters counts the clusters made so far, so that each gets its own id.
var clusters atomic.Uint64

// A Node is one server of a cluster.
type Node struct {
	pb.UnimplementedLockServiceServer
	pb.UnimplementedAdminServiceServer
	cluster *Cluster
	address string
	silent  bool // guarded by cluster.mu: accepts requests but answers none
}

type stream struct {
	node *Node
	out  chan *pb.ServerEvent
	end  chan error
}

// A TB is what Start needs from a test.
type TB interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
}

// Start serves n nodes until the test ends. The first one is the leader.
func Start(t TB, n int) (*Cluster, []*Node) {
	t.Helper()
	c, nodes, stop, err := Serve(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return c, nodes
}

// Serve serves n nodes until stop is called. The first one is the leader.
func Serve(n int) (c *Cluster, nodes []*Node, stop func(), err error) {
	c = &Cluster{id: fmt.Sprintf("%032x", clusters.Add(1)), service: New(), streams: make(map[int]*stream), deadline: make(map[string]time.Time)}
	var parts sync.WaitGroup
	var servers []*grpc.Server
	done := make(chan struct{})
	stop = func() {
		close(done)
		for _, s := range servers {
			s.Stop()
		}
		parts.Wait()
	}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, nil, err
		}
		node := &Node{cluster: c, address: l.Addr().String()}
		s := grpc.NewServer(grpc.UnaryInterceptor(c.pinUnary), grpc.StreamInterceptor(c.pinStream))
		pb.RegisterLockServiceServer(s, node)
		pb.RegisterAdminServiceServer(s, node)
		parts.Go(func() { _ = s.Serve(l) }) // returns after Stop
		servers, nodes = append(servers, s), append(nodes, node)
	}
	c.leader = nodes[0].address
	parts.Go(func() { c.time(done) })
	return c, nodes, stop, nil
}

// Address is where clients connect.
func (n *Node) Address() string { return n.address }

// Do runs f on the state of the cluster and delivers the resulting events.
func (c *Cluster) Do(f func(*Service)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.service)
	c.deliverLocked()
}

// ID is the id of the cluster.
func (c *Cluster) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// SetID gives the cluster another id, or, if id is empty, makes it a cluster that does not report
// its id.
func (c *Cluster) SetID(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
}

// Replace replaces the cluster with a new one without sessions, as a restore does. All streams end.
func (c *Cluster) Replace() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id, c.service = fmt.Sprintf("%032x", clusters.Add(1)), New()
	clear(c.deadline)
	for _, s := range c.streams {
		s.end <- c.notLeaderLocked()
	}
	clear(c.streams)
}

// Named returns the ids that requests named.
func (c *Cluster) Named() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.named)
}

// pin sends the cluster id in a header, and refuses calls for another cluster.
func (c *Cluster) pin(ctx context.Context, setHeader func(metadata.MD) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == "" {
		return nil
	}
	if err := setHeader(metadata.Pairs("lockstep-cluster", c.id)); err != nil {
		return err
	}
	for _, id := range metadata.ValueFromIncomingContext(ctx, "lockstep-cluster") {
		c.named = append(c.named, id)
		if id != c.id {
			return Fail(codes.FailedPrecondition, &pb.Error{Reason: pb.Reason_REASON_WRONG_CLUSTER, Message: "fake: another cluster"})
		}
	}
	return nil
}

func (c *Cluster) pinUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	if err := c.pin(ctx, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }); err != nil {
		return nil, err
	}
	return serve(ctx, req)
}

func (c *Cluster) pinStream(srv any, g grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	if err := c.pin(g.Context(), g.SetHeader); err != nil {
		return err
	}
	return serve(srv, g)
}

// Lead makes the node the leader; nil leaves the cluster without one. All streams end.
func (c *Cluster) Lead(n *Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = ""
	if n != nil {
		c.leader = n.address
	}
	for _, s := range c.streams {
		s.end <- c.notLeaderLocked()
	}
	clear(c.streams)
}

// Silence makes the node accept requests without answering them.
func (n *Node) Silence(silent bool) {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	n.silent = silent
}

// Break makes every Acquire end its stream with err. Nil ends this.
func (c *Cluster) Break(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaking = err
}

// Streams returns how many streams were opened on the leader.
func (c *Cluster) Streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastID
}

// Received returns how many frames and requests have arrived.
func (c *Cluster) Received() (frames, requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames, c.requests
}

func (c *Cluster) time(stop chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			c.Do(func(s *Service) {
				for id, at := range c.deadline {
					if now.After(at) {
						delete(c.deadline, id)
						s.Expire(id)
					}
				}
			})
		}
	}
}

func (c *Cluster) deliverLocked() {
	for _, d := range c.service.Drain() {
		if s := c.streams[d.Stream]; s != nil && !s.node.silent {
			s.out <- d.Event
		}
	}
}

// Fail returns the gRPC error with the contents of e, as the service builds it.
func Fail(code codes.Code, e *pb.Error) error {
	info := &errdetails.ErrorInfo{Reason: strings.TrimPrefix(e.GetReason().String(), "REASON_"), Domain: "lockstep.dev"}
	s, err := status.New(code, e.GetMessage()).WithDetails(protoadapt.MessageV1Of(info), protoadapt.MessageV1Of(e))
	if err != nil {
		panic(err)
	}
	return s.Err()
}

func (c *Cluster) notLeaderLocked() error {
	return Fail(codes.Unavailable, &pb.Error{Reason: pb.Reason_REASON_NOT_LEADER, Message: "this node is not the leader", LeaderAddress: c.leader})
}

// Session implements the stream.
func (n *Node) Session(g pb.LockService_SessionServer) error {
	c := n.cluster
	c.mu.Lock()
	if c.leader != n.address {
		defer c.mu.Unlock()
		return c.notLeaderLocked()
	}
	c.lastID++
	id := c.lastID
	st := &stream{node: n, out: make(chan *pb.ServerEvent, 4096), end: make(chan error, 2)}
	c.streams[id] = st
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.streams, id)
		c.service.Gone(id)
		c.mu.Unlock()
	}()
	go func() {
		for {
			f, err := g.Recv()
			if err != nil {
				st.end <- nil
				return
			}
			c.take(n, id, f)
		}
	}()
	for {
		select {
		case err := <-st.end:
			return err
		case e := <-st.out:
			if err := g.Send(&pb.ServerFrame{Events: []*pb.ServerEvent{e}}); err != nil {
				return err
			}
		}
	}
}

func (c *Cluster) take(n *Node, id int, f *pb.ClientFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames++
	c.requests += len(f.GetRequests())
	if n.silent || c.streams[id] == nil {
		return
	}
	for _, r := range f.GetRequests() {
		if r.GetAcquire() != nil && c.breaking != nil {
			c.streams[id].end <- c.breaking
			delete(c.streams, id)
			return
		}
		if s := c.service.Handle(id, r); s != "" {
			e := c.service.sessions[s]
			c.deadline[s] = time.Now().Add(time.Duration(e.ttl+c.service.Gracems) * time.Millisecond)
		}
	}
	c.deliverLocked()
}

// GetLock implements the read.
func (n *Node) GetLock(_ context.Context, r *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != n.address {
		return nil, c.notLeaderLocked()
	}
	l := &pb.Lock{Name: r.GetName()}
	if id, seq, token := c.service.Holder(r.GetName()); id != "" {
		l.Holders = []*pb.Holder{{Session: id, Seq: seq, Token: token}}
	}
	for _, w := range c.service.lock(r.GetName()).waiters {
		l.Waiters = append(l.Waiters, &pb.Holder{Session: w.session.id, Seq: w.seq})
	}
	return &pb.GetLockResponse{Lock: l}, nil
}

// Status implements the status request to one node.
func (n *Node) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	return &pb.StatusResponse{ClusterId: n.cluster.id, Node: n.address, LeaderAddress: n.cluster.leader}, nil
}

// Revoke implements the revocation of one grant.
func (n *Node) Revoke(_ context.Context, r *pb.RevokeRequest) (*pb.RevokeResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != n.address {
		return nil, c.notLeaderLocked()
	}
	resp := &pb.RevokeResponse{}
	for name, l := range c.service.locks {
		t := r.GetClaim()
		if l.holder != nil && l.holder.session.id == t.GetSession() && l.holder.seq == t.GetSeq() && l.holder.status.GetToken() == t.GetToken() && c.service.Revoke(name, r.GetBy()) {
			resp.Revoked++
		}
	}
	c.deliverLocked()
	return resp, nil
}

// Elect makes the node the leader without ending the streams of the old one, as if the old leader
// were frozen.
func (c *Cluster) Elect(n *Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = n.address
}
