package service

import (
	"context"
	"testing"

	"google.golang.org/grpc"
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
