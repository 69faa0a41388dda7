package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/lease"
)

// The bounds of one frame: well below the service's 1 MiB and 4096 requests.
const (
	maxFrameRequests = 512
	maxFrameBytes    = 512 << 10
)

// maxAnswerBytes bounds an answer. A lock with its 16,384 waiters, each with names and metadata,
// takes up to about 50 MiB.
const maxAnswerBytes = 64 << 20

// The waits while the nodes know no leader, and after losing a connection that served; the latter
// spreads out the clients of a leader that died. An election takes about a second, and the longest
// wait comes on top of it.
const (
	firstPause  = 50 * time.Millisecond
	longestWait = 400 * time.Millisecond
	spread      = 50 * time.Millisecond
)

// The waits after connections that attached and then ended before they were useful. They grow, so
// that clients whose requests end their connections do not cause a reconnect storm.
const (
	longestUseless = 5 * time.Second
	// usefulAfter is how long a connection must have served to count as useful if it granted
	// nothing.
	usefulAfter = 2 * time.Second
)

// A link is one connection with its stream. Its queue is guarded by the client's mutex
// and bounded by the session's window.
type link struct {
	addr     string
	cancel   context.CancelFunc
	queue    []*pb.ClientRequest
	wake     chan struct{}  // 1 token: the queue is not empty
	attached bool           // the node served the session
	since    time.Duration  // when it first served
	granted  bool           // a claim was granted on it
	reached  bool           // the node answered at all
	leader   string         // the node it named as the leader
	err      error          // why it ended
	answer   EndpointAnswer // the same, for the summary of an outage
}

// dialTimeout bounds connection setup: TTL/10, since several dead nodes may be tried before the
// lease ends, 500 ms to 2 s.
func dialTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 500*time.Millisecond), 2*time.Second)
}

// keepConnected is the goroutine that keeps a connection to the leader while a session wants one.
// It also reads from that connection.
func (c *Client) keepConnected() {
	f := newFinder(c.cfg.Endpoints)
	backoff := lease.Backoff{Base: firstPause, Max: longestWait}
	useless := lease.Backoff{Base: firstPause, Max: longestUseless}
	for c.awaitWanted() {
		addr, round := f.next()
		if round && !c.sleep(backoff.Next()) {
			return
		}
		l := c.serve(addr)
		c.heedCluster(l)
		now := c.cfg.Clock.Now()
		f.leads(now, l.leader)
		switch {
		case l.useful(now):
			f.found(addr)
			backoff.Reset()
			useless.Reset()
			c.sleep(time.Duration(jitter() * float64(spread)))
		case l.attached:
			f.found(addr)
			c.sleep(min(useless.Next(), c.longestPause()))
		case !l.reached:
			f.unreachable(now, addr)
		case !f.hinted(): // it is not the leader and knows of none: ask it again later, or another
			c.sleep(backoff.Next())
			f.rested()
		}
	}
}

// longestPause bounds the wait after a useless connection: a lease in use must still get renewed.
func (c *Client) longestPause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.mu.sess; s != nil && len(c.mu.claims) > 0 && s.Valid(c.cfg.Clock.Now()) {
		return s.TTL() / 10
	}
	return longestUseless
}

// useful reports whether the connection, which has ended at now, served its purpose.
func (l *link) useful(now time.Duration) bool {
	return l.attached && (l.granted || l.err == nil || now >= l.since+usefulAfter)
}

// awaitWanted waits until a session wants a connection; false at the end of the client.
func (c *Client) awaitWanted() bool {
	for {
		c.mu.Lock()
		wanted := c.mu.sess != nil
		c.mu.Unlock()
		if wanted {
			return c.life.Err() == nil
		}
		select {
		case <-c.life.Done():
			return false
		case <-c.wakeLink:
		}
	}
}

// sleep waits for d; false at the end of the client.
func (c *Client) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.life.Done():
		return false
	case <-t.C:
		return true
	}
}

// serve connects to addr and uses the connection until it ends. It returns the final state of the
// link.
func (c *Client) serve(addr string) *link {
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	l := &link{addr: addr, cancel: cancel, wake: make(chan struct{}, 1)}
	conn, err := c.guard.dial(addr)
	if err != nil {
		c.endLink(l, err)
		return l
	}
	defer conn.Close()
	stream, err := openStream(ctx, cancel, conn, dialTimeout(c.cfg.TTL))
	if err != nil {
		c.endLink(l, err)
		return l
	}
	c.do(func(now time.Duration) {
		l.reached = true
		c.mu.link = l
		c.eventLocked(Event{Kind: Connected, Endpoint: addr})
		if c.mu.sess != nil {
			c.mu.sess.Connected(now)
		}
	})
	var writer sync.WaitGroup
	writer.Go(func() { c.write(ctx, l, stream) })
	err = c.read(l, stream)
	cancel()
	writer.Wait()
	c.endLink(l, err)
	return l
}

// dial creates a connection, which connects on first use. Locks do not go through HTTP proxies from
// the environment.
func (c Config) dial(addr string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := c.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithChainUnaryInterceptor(markUnsent),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		// A peer that vanished silently is noticed when a session keepalive gets no answer; this
		// setting is for idle connections. 10 s is gRPC's minimum.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		// A node that comes back is noticed within a second; gRPC's own backoff goes up to two
		// minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: tryTimeout,
		}),
	}
	return grpc.NewClient(targetOf(addr), slices.Concat(options, more, c.DialOptions)...)
}

// targetOf writes host:port as a URL of gRPC, which would otherwise treat a host named "unix" as a
// scheme, and the zone of an IPv6 address as an escape.
func targetOf(addr string) string { return "dns:///" + strings.ReplaceAll(addr, "%", "%25") }

type sessionStream = grpc.BidiStreamingClient[pb.ClientFrame, pb.ServerFrame]

// openStream opens the stream within limit; the stream itself lives as long as ctx.
func openStream(ctx context.Context, cancel context.CancelFunc, conn *grpc.ClientConn, limit time.Duration) (sessionStream, error) {
	late := time.AfterFunc(limit, cancel)
	stream, err := pb.NewLockServiceClient(conn).Session(ctx)
	if !late.Stop() {
		return nil, fmt.Errorf("%w within %v", errNoConnection, limit)
	}
	return stream, err
}

var errNoConnection = errors.New("no connection")

// read passes incoming events to the session until the stream ends or the link is abandoned.
func (c *Client) read(l *link, stream sessionStream) error {
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		c.do(func(now time.Duration) {
			for _, e := range frame.GetEvents() {
				if c.mu.sess != nil && c.mu.link == l {
					c.mu.sess.Receive(now, e)
				}
			}
		})
	}
}

// write sends the queued requests, as many per frame as fit.
func (c *Client) write(ctx context.Context, l *link, stream sessionStream) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		runtime.Gosched() // other runnable goroutines may have requests for the same frame
		for {
			requests := c.takeFrame(l)
			if len(requests) == 0 {
				break
			}
			if stream.Send(&pb.ClientFrame{Requests: requests}) != nil {
				return // read has the reason
			}
		}
	}
}

func (c *Client) takeFrame(l *link) []*pb.ClientRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, size := 0, 0
	for n < len(l.queue) && n < maxFrameRequests {
		size += proto.Size(l.queue[n])
		if n > 0 && size > maxFrameBytes {
			break
		}
		n++
	}
	frame := l.queue[:n:n]
	l.queue = l.queue[n:]
	return frame
}

// sendLocked queues requests on the current connection.
func (c *Client) sendLocked(requests []*pb.ClientRequest) {
	if len(requests) == 0 || c.mu.link == nil {
		return
	}
	c.mu.link.queue = append(c.mu.link.queue, requests...)
	wake(c.mu.link.wake)
}

// reconnectLocked abandons a useless connection.
func (c *Client) reconnectLocked(leader string, err error) {
	l := c.mu.link
	if l == nil {
		return
	}
	l.leader, l.err = leader, err
	l.cancel()
}

// endLink records the end of a connection: it notifies the sessions on it and drops what was not
// sent.
func (c *Client) endLink(l *link, err error) {
	if c.life.Err() != nil {
		err = nil // our own doing
	}
	c.do(func(now time.Duration) {
		if l.err == nil && err != nil {
			l.answer = answerOf(l.addr, err)
		}
		if e := wireError(err); e != nil {
			l.leader = e.GetLeaderAddress()
			err = fromWire(e)
		}
		if l.err == nil {
			l.err = err
		}
		if l.err != nil {
			c.mu.lastErr = fmt.Errorf("%s: %w", l.addr, withoutCode(l.err))
			c.guard.tally.failed(l.answer)
		}
		if c.mu.link == l { // otherwise it never came up, or was abandoned
			c.unlinkLocked(now, l)
		}
	})
	if l.attached && err != nil && !errors.Is(err, context.Canceled) {
		c.cfg.Logger.Warn("connection lost", "endpoint", l.addr, "err", l.err)
	}
}

// unlinkLocked abandons the link: nothing more is sent on it, and whatever still arrives from it is
// ignored.
func (c *Client) unlinkLocked(now time.Duration, l *link) {
	c.mu.link, l.queue = nil, nil
	if c.mu.attached {
		c.mu.attached, c.mu.downSince = false, now
	}
	for _, s := range c.mu.revoked {
		s.Disconnected(now)
	}
	c.mu.revoked = nil
	if c.mu.sess != nil {
		c.mu.sess.Disconnected(now)
	}
	c.eventLocked(Event{Kind: Disconnected, Endpoint: l.addr, Err: l.err})
}
