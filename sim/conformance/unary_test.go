package conformance

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// TestAUnaryWaitOutlivesTheLeader: a call that waits in the queue through a follower, like one from
// curl, continues at the next leader.
func TestAUnaryWaitOutlivesTheLeader(t *testing.T) {
	c := startCluster(t, 3)
	leader := c.leader()
	k, _ := c.client(t, 10*time.Second)
	held := acquire(t, k, "jobs/one")
	follower := c.names[0]
	if follower == leader {
		follower = c.names[1]
	}
	conn, err := grpc.NewClient(c.ports[follower], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	api := pb.NewLockServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	session, err := api.OpenSession(ctx, &pb.OpenSessionRequest{TtlMs: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	wait := uint64(30_000)
	got := make(chan error, 1)
	go func() {
		_, err := api.Acquire(ctx, &pb.AcquireRequest{
			Session: session.GetSession(), Secret: session.GetSecret(), Nonce: "once",
			Spec: &pb.ClaimSpec{Names: []string{"jobs/one"}, WaitMs: &wait},
		})
		got <- err
	}()
	until(t, 10*time.Second, "waiter", func() bool { return claims(t, k, "jobs/one") == 2 })
	c.stop(leader)
	select {
	case err := <-got:
		t.Fatalf("the wait ended with the leader: %v", err)
	case <-time.After(3 * time.Second):
	}
	release(t, held)
	if err := <-got; err != nil {
		t.Errorf("after the release: %v", err)
	}
}
