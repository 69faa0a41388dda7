package service

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// accounted makes a service whose port accepts these connections, with default limits.
func accounted(t *testing.T, b Bounds, from ...*end) *Service {
	t.Helper()
	l := Limits{}.withDefaults()
	s := &Service{cfg: Config{Limits: l}.withDefaults()}
	s.unread.limit, s.unread.timeout = l.UnreadBytes, l.Untaken
	line := make([]any, len(from))
	for i, e := range from {
		line[i] = e
	}
	s.port = portOf(b, line...)
	s.port.rate = l.RequestsPerSecond
	s.port.open = func(end func()) *account {
		a := newAccount(&s.unread, l.UnreadBytesPerConnection, end)
		a.reads = newMeter(1)
		return a
	}
	return s
}

// readOn makes a read on a connection, as gRPC does. during is called while it is served.
func readOn(s *Service, c *conn, during func()) error {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: c.RemoteAddr()})
	info := &grpc.UnaryServerInfo{FullMethod: pb.LockService_GetLock_FullMethodName}
	_, err := s.chargeUnary(ctx, &pb.GetLockRequest{}, info, func(context.Context, any) (any, error) {
		during()
		return &pb.GetLockResponse{}, nil
	})
	return err
}

func TestAnAddressThatReadsNothingLeavesRoomForOthers(t *testing.T) {
	const perAddress = 16 // connections with 8 MiB are half of the node's 256 MiB
	var from []string
	for _, address := range []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"} {
		for range perAddress {
			from = append(from, address)
		}
	}
	from = append(from, "10.0.0.1:2", "10.0.0.4:1")
	s := accounted(t, Bounds{Connections: 100}, ends(from...)...)
	for range from[:perAddress] {
		if c := accepted(t, s.port); readOn(s, c, func() {}) != nil || !c.account.hold(8<<20) {
			t.Fatal("an address is refused below its share")
		}
	}
	var last *conn
	for range from[perAddress : 3*perAddress] {
		last = accepted(t, s.port)
		last.account.hold(8 << 20)
	}
	if used := s.unread.used.Load(); used != 3*128<<20 {
		t.Fatalf("%d bytes are unread", used)
	}

	same, other := accepted(t, s.port), accepted(t, s.port)
	if r := protocol.FromErr(readOn(s, same, func() {})).GetReason(); r != pb.Reason_REASON_OVERLOADED {
		t.Errorf("a read of an address above its share: %v", r)
	}
	if !same.account.hold(unreadShare) || same.account.hold(1) {
		t.Error("the streams of an address above its share have other than 256 KiB")
	}
	if err := readOn(s, other, func() {}); err != nil {
		t.Errorf("a read of another address: %v", err)
	}
	if !other.account.hold(unreadShare + 1) {
		t.Error("a stream of another address has lost its room")
	}
	if r := protocol.FromErr(readOn(s, other, func() {})).GetReason(); r != pb.Reason_REASON_OVERLOADED {
		t.Errorf("a read with more than 256 KiB unread while the node is above its bound: %v", r)
	}
	_ = last.Close()
	if same.account.fits(1) {
		t.Error("what another address has read counts for this one")
	}
}

// answer makes a call on a connection, and encodes its answer, which nobody takes until it is
// freed. The call has then ended.
func answer(t *testing.T, s *Service, c *conn) mem.BufferSlice {
	t.Helper()
	ctx, end := context.WithCancel(peer.NewContext(t.Context(), &peer.Peer{Addr: c.RemoteAddr()}))
	defer end()
	info := &grpc.UnaryServerInfo{FullMethod: pb.LockService_KeepAlive_FullMethodName}
	resp, err := s.chargeUnary(ctx, &pb.KeepAliveRequest{}, info, func(context.Context, any) (any, error) {
		return &pb.KeepAliveResponse{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := newCodec().Marshal(resp)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// A silentStream is a stream whose client takes nothing.
type silentStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *silentStream) Context() context.Context { return s.ctx }

func (s *silentStream) SendMsg(m any) error {
	_, err := newCodec().Marshal(m)
	return err
}

func TestAFewLostAnswersOfEndedCallsDoNotEndAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := ends("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
		s := accounted(t, Bounds{Connections: 3}, e...)
		few, many, stream := accepted(t, s.port), accepted(t, s.port), accepted(t, s.port)
		for range 30 {
			answer(t, s, few)
		}
		for range 40 { // of 2 KiB each, over 8 s
			answer(t, s, many)
			time.Sleep(200 * time.Millisecond)
		}
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: stream.RemoteAddr()})
		err := s.chargeStream(nil, &silentStream{ctx: ctx}, nil, func(_ any, g grpc.ServerStream) error {
			if err := g.SendMsg(&pb.ServerFrame{}); err != nil {
				return err
			}
			time.Sleep(11 * time.Second)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if e[0].closed || !e[1].closed || !e[2].closed {
			t.Errorf("closed: few lost answers %v, many %v, an open stream %v; want the last two", e[0].closed, e[1].closed, e[2].closed)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if used := s.unread.used.Load(); used != 0 {
			t.Errorf("%d lost bytes still count", used)
		}
	})
}

func TestAnAnswerIsGivenBackOnce(t *testing.T) {
	s := accounted(t, Bounds{Connections: 1}, ends("10.0.0.1:1")...)
	c := accepted(t, s.port)
	answer(t, s, c)
	charge, b := c.account.mu.charges.Front().Value.(*charge), make([]byte, 1)
	charge.Put(&b)
	charge.Put(&b)
	if used := s.unread.used.Load(); used != 0 {
		t.Errorf("%d bytes are unread", used)
	}
}

func TestAConnectionWithAReadOrAnUnreadAnswerIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := ends("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1")
		s := accounted(t, Bounds{Connections: 1}, e...)
		c := accepted(t, s.port)
		next := func() { _, _ = s.port.Accept() }

		c.account.reads.take(time.Now(), 1)
		done := make(chan error, 1)
		go func() { done <- readOn(s, c, func() {}) }() // waits for a second
		synctest.Wait()
		s.port.Listener = &gate{next: []any{e[1]}}
		next()
		if e[0].closed || !e[1].closed {
			t.Error("a connection whose read waits has lost its place")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}

		unread := answer(t, s, c)
		s.port.Listener = &gate{next: []any{e[2]}}
		next()
		if e[0].closed || !e[2].closed {
			t.Error("a connection with an unread answer has lost its place")
		}
		unread.Free()
		s.port.Listener = &gate{next: []any{e[3]}}
		next()
		if !e[0].closed || e[3].closed {
			t.Error("a connection that has read its answer keeps its place")
		}
	})
}
