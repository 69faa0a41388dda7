package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
)

// loseAnswers makes every call of Revoke fail with err after the service has carried it out.
func loseAnswers(err error) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		done := invoke(ctx, method, req, reply, cc, opts...)
		if done == nil && method == pb.AdminService_Revoke_FullMethodName {
			return err
		}
		return done
	})
}

func TestAChangeThatMayHaveTakenEffectIsUncertain(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]error{
		"the connection broke":                status.Error(codes.Unavailable, "error reading from server: EOF"),
		"the node lost its own to the leader": wirefake.Fail(codes.Unavailable, &pb.Error{Reason: pb.Reason_REASON_NOT_LEADER, Uncertain: true}),
		"the node goes down":                  wirefake.Fail(codes.Unavailable, &pb.Error{Reason: pb.Reason_REASON_UNAVAILABLE, Uncertain: true}),
	} {
		_, nodes := wirefake.Start(t, 1)
		acquire(t, newClient(t, nodes), "a")
		admin, err := client.NewAdmin(client.Config{
			Endpoints: []string{nodes[0].Address()}, UnavailableAfter: 300 * time.Millisecond, DialOptions: []grpc.DialOption{loseAnswers(lost)},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		_, err = admin.RevokeLock(t.Context(), "a", client.Revocation{By: "ops", Reason: "test"})
		if !errors.Is(err, lockstep.ErrUncertain) || errors.Is(err, lockstep.ErrUnavailable) || lockstep.SafeToRetry(err) {
			t.Errorf("%s: %v, want that it is uncertain", name, err)
		}
	}
}

func TestAChangeThatNoNodeGotIsUnavailable(t *testing.T) {
	t.Parallel()
	admin, err := client.NewAdmin(client.Config{Endpoints: []string{closedPort(t)}, UnavailableAfter: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for name, call := range map[string]func() error{
		"revoke": func() error {
			_, err := admin.RevokeSession(t.Context(), strings.Repeat("0", 31)+"1", client.Revocation{By: "ops", Reason: "test"})
			return err
		},
		"add":       func() error { _, err := admin.AddMember(t.Context(), "n4", "h:7401"); return err },
		"promote":   func() error { _, err := admin.PromoteMember(t.Context(), "n4"); return err },
		"remove":    func() error { return admin.RemoveMember(t.Context(), "n4", false) },
		"hand over": func() error { _, err := admin.HandOver(t.Context(), ""); return err },
	} {
		if err := call(); !errors.Is(err, lockstep.ErrUnavailable) || !lockstep.SafeToRetry(err) || errors.Is(err, lockstep.ErrUncertain) {
			t.Errorf("%s: %v, want that it certainly had no effect", name, err)
		}
	}
}

func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestUsersAreToldNothingOfGRPC checks that errors about an endpoint are in the user's terms.
// speaksHTTP2 returns the address of an HTTP/2 server that does not know gRPC.
func speaksHTTP2(t *testing.T) string {
	t.Helper()
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.Protocols = new(http.Protocols)
	web.Config.Protocols.SetUnencryptedHTTP2(true)
	web.Start()
	t.Cleanup(web.Close)
	return web.Listener.Addr().String()
}

func TestUsersAreToldNothingOfGRPC(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	go func() {
		for {
			conn, err := mute.Accept()
			if err != nil {
				return
			}
			go func() { // like the peer port: it waits for its own kind of greeting
				conn.Read(make([]byte, 1024))
				conn.Close()
			}()
		}
	}()
	for addr, want := range map[string]string{
		closedPort(t):                "refuses connections",
		"host.invalid:7400":          "cannot be resolved",
		speaksHTTP2(t):               "7400",
		web.Listener.Addr().String(): "7400",
		mute.Addr().String():         "7400",
	} {
		cfg := client.Config{Endpoints: []string{addr}, UnavailableAfter: 200 * time.Millisecond}
		admin, err := client.NewAdmin(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		locker, err := client.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close(t.Context())
		_, read := admin.Lock(t.Context(), "a", 0)
		_, waited := locker.Acquire(t.Context(), "a")
		for what, err := range map[string]error{"read": read, "acquire": waited, "status": admin.Status(t.Context())[0].Err} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %s: %v, want %q in it", what, addr, err, want)
				continue
			}
			for _, inside := range []string{"transport:", "desc =", "http2:", "preface", "rpc error"} {
				if strings.Contains(err.Error(), inside) {
					t.Errorf("%s of %s tells of gRPC: %v", what, addr, err)
				}
			}
		}
	}
}
