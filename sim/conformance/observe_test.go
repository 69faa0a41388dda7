package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
)

func TestARevocationWhoseAnswerIsLostIsCounted(t *testing.T) {
	c := startCluster(t, 1)
	k, _ := c.client(t, 5*time.Second)
	var calls atomic.Int32
	loseFirst := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if err == nil && method == pb.AdminService_Revoke_FullMethodName && calls.Add(1) == 1 {
			return status.Error(codes.Unavailable, "the answer is lost")
		}
		return err
	}
	admin, err := client.NewAdmin(client.Config{Endpoints: c.endpoints(), DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(loseFirst)}})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := k.Acquire(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	n, err := admin.RevokeLock(t.Context(), "x", client.Revocation{By: "alice", Reason: "stuck"})
	if err != nil || n != 1 || calls.Load() < 2 {
		t.Errorf("revoked %d in %d calls, err %v, want 1 in 2", n, calls.Load(), err)
	}
}

func TestAWatchGoesOnOverTheRestartOfEveryNode(t *testing.T) {
	c := startCluster(t, 3)
	admin := c.admin(t)
	k, _ := c.client(t, 5*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var want []string
	work := func(name string) {
		t.Helper()
		l, err := k.Acquire(ctx, name)
		if err == nil {
			err = l.Release(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, "GRANTED "+name, "RELEASED "+name)
	}
	work("w/0")
	events := make(chan string, 100)
	go func() {
		defer close(events)
		for e, err := range admin.Watch(ctx, "w/", 1) { // after the first grant
			if err != nil {
				events <- err.Error()
				return
			}
			events <- strings.TrimPrefix(e.GetKind().String(), "EVENT_KIND_") + " " + e.GetName()
		}
	}()
	if got := <-events; got != want[1] {
		t.Fatalf("first %q, want %q", got, want[1])
	}
	for i, name := range c.names {
		work(fmt.Sprint("w/", 2*i+1))
		c.stop(name)
		c.leader()
		work(fmt.Sprint("w/", 2*i+2))
		c.start(name)
	}
	for _, want := range want[2:] {
		if got := <-events; got != want {
			t.Fatalf("watched %q, want %q", got, want)
		}
	}
	cancel()
	for range events { // the goroutine ends
	}
}
