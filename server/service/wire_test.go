package service_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/service"
)

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(b mem.BufferSlice, v any) error { *v.(*[]byte) = b.Materialize(); return nil }
func (rawCodec) Name() string                             { return "proto" }

var garbage = map[string][]byte{
	"bytes that are no message":      {0xff, 0xff, 0xff, 0xff},
	"a message that is cut off":      {0x0a, 0x7f, 'x'},
	"text that is not UTF-8":         {0x0a, 0x02, 0xc3, 0x28},
	"a wrong type of the right size": {0x08, 0x01, 0x15, 0, 0},
}

func TestAMalformedUnaryMessageIsAnInvalidArgument(t *testing.T) {
	t.Parallel()
	conn := dial(t, startNode(t).address)
	for name, b := range garbage {
		t.Run(name, func(t *testing.T) {
			var reply []byte
			err := conn.Invoke(patient(t), pb.LockService_GetLock_FullMethodName, b, &reply, grpc.ForceCodecV2(rawCodec{}))
			wantReason(t, err, pb.Reason_REASON_INVALID_ARGUMENT)
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("code %v", status.Code(err))
			}
		})
	}
}

func TestAMalformedFrameEndsTheStream(t *testing.T) {
	t.Parallel()
	conn := dial(t, startNode(t).address)
	for name, b := range garbage {
		t.Run(name, func(t *testing.T) {
			if name == "text that is not UTF-8" {
				b = append([]byte{0x0a, byte(len(b) + 2), 0x12, byte(len(b))}, b...)
			}
			desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
			s, err := conn.NewStream(patient(t), desc, pb.LockService_Session_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.SendMsg(b); err != nil {
				t.Fatal(err)
			}
			var reply []byte
			wantReason(t, s.RecvMsg(&reply), pb.Reason_REASON_INVALID_ARGUMENT)
		})
	}
}

func TestABigUnaryMessageIsRefused(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	_, err := api.GetLock(patient(t), &pb.GetLockRequest{Name: strings.Repeat("x", 100<<10)})
	wantReason(t, err, pb.Reason_REASON_QUOTA_EXCEEDED)
	// Refused by gRPC itself.
	_, err = api.GetLock(patient(t), &pb.GetLockRequest{Name: strings.Repeat("x", 10<<20)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("code %v, want ResourceExhausted", status.Code(err))
	}
}

// TestALengthOf4GiBAllocatesNothing sends the head of a message that claims to be 4 GiB long.
func TestALengthOf4GiBAllocatesNothing(t *testing.T) {
	m := startNode(t)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	defer tr.CloseIdleConnections()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, method := range []string{pb.LockService_GetLock_FullMethodName, pb.LockService_Session_FullMethodName} {
		req, err := http.NewRequestWithContext(patient(t), http.MethodPost, "http://"+m.address+method, bytes.NewReader([]byte{0, 0xff, 0xff, 0xff, 0xff, 'x'}))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("TE", "trailers")
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // the trailers come after it
		resp.Body.Close()
		code := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
		if code != "8" { // RESOURCE_EXHAUSTED
			t.Errorf("%s: grpc-status %q, want 8", method, code)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
}

func TestWhatIsNotHTTP2IsDisconnected(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	for name, greeting := range map[string]string{
		"HTTP/1.1": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"garbage":  strings.Repeat("\x00\xff", 200),
		"TLS":      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 100),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", m.address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, greeting); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("the connection stays open: %v", err)
			}
		})
	}
}

func TestConnectionsAboveTheLimitAreClosed(t *testing.T) {
	t.Parallel()
	m := startCluster(t, clusterOptions{nodes: 1, limits: service.Limits{Connections: 2, ConnectionsPerAddress: 2}}).leader()
	a, b := connect(t, m), connect(t, m)
	a.open(60_000)
	b.open(60_000)
	c, err := net.Dial("tcp", m.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the third connection read %d bytes, %v; want it closed", n, err)
	}
	a.open(60_000) // the others continue
	b.open(60_000)
}

func TestHealthFollowsTheNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	leader := c.leader()
	var clients []grpc_health_v1.HealthClient
	for _, m := range c.nodes {
		clients = append(clients, grpc_health_v1.NewHealthClient(dial(t, m.address)))
	}
	is := func(h grpc_health_v1.HealthClient, want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		eventually(t, func() error {
			r, err := h.Check(context.WithoutCancel(t.Context()), &grpc_health_v1.HealthCheckRequest{Service: "lockstep.v1.LockService"})
			if err == nil && r.GetStatus() != want {
				err = status.Error(codes.Unknown, r.GetStatus().String())
			}
			return err
		})
	}
	for _, h := range clients {
		is(h, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	// A node that is left alone stops serving.
	for i, m := range c.nodes {
		if m != leader {
			m.stop()
		} else {
			defer is(clients[i], grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		}
	}
}

func TestReflectionListsTheServices(t *testing.T) {
	t.Parallel()
	s, err := grpc_reflection_v1.NewServerReflectionClient(dial(t, startNode(t).address)).ServerReflectionInfo(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil || !strings.Contains(r.String(), "lockstep.v1.LockService") || !strings.Contains(r.String(), "lockstep.v1.AdminService") {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestAMinorityAnswersUnavailableAndGrantsNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	leader := c.leader()
	a := newCaller(t, locks(t, leader), &pb.OpenSessionRequest{TtlMs: 60_000})
	for _, m := range c.nodes {
		if m != leader {
			m.stop()
		}
	}
	_, err := a.acquire(patient(t), try("x"))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("an acquire without a quorum ended with %v, want Unavailable", err)
	}
	_, err = a.api.KeepAlive(patient(t), &pb.KeepAliveRequest{Session: a.session, Secret: a.secret})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a keepalive without a quorum ended with %v, want Unavailable", err)
	}
	_, err = a.api.GetLock(patient(t), &pb.GetLockRequest{Name: "x"})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a read without a quorum ended with %v, want Unavailable", err)
	}
}
