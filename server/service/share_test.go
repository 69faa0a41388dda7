package service_test

import (
	"testing"

	"google.golang.org/grpc/metadata"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

func TestOneAddressCannotTakeAllSessions(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3, sessionsPerAddress: 5})
	api := []pb.LockServiceClient{locks(t, c.leader()), locks(t, c.follower())} // both count
	for i := range 5 {
		if _, err := api[i%2].OpenSession(patient(t), &pb.OpenSessionRequest{TtlMs: 300_000}); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range api {
		// A client that makes up an address, or a forwarding node, still counts as itself.
		ctx := metadata.AppendToOutgoingContext(patient(t), "lockstep-client", "10.9.9.9:1 00")
		_, err := one.OpenSession(ctx, &pb.OpenSessionRequest{TtlMs: 300_000})
		e := wantReason(t, err, pb.Reason_REASON_QUOTA_EXCEEDED)
		if want := "sessions of clients at 127.0.0.1: at most 5"; e.GetMessage() != want {
			t.Errorf("the error says %q, want %q", e.GetMessage(), want)
		}
	}
	l := connect(t, c.leader())
	l.send(open(9, 10_000))
	if e := l.answer(9).GetError(); e.GetReason() != pb.Reason_REASON_QUOTA_EXCEEDED {
		t.Errorf("on a stream: %v", e)
	}
}
