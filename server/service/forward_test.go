package service_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/service"
)

func TestAFollowerPassesUnaryCallsOnToTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	leader := c.leader()
	conn := dial(t, c.follower().address)
	api, admin := pb.NewLockServiceClient(conn), pb.NewAdminServiceClient(conn)

	a := newCaller(t, api, &pb.OpenSessionRequest{})
	held := a.take("job")
	b := newCaller(t, api, &pb.OpenSessionRequest{})
	_, err := b.acquire(patient(t), try("job"))
	if e := wantReason(t, err, pb.Reason_REASON_BUSY); len(e.GetHolders()) != 1 || e.GetHolders()[0].GetSession() != a.session {
		t.Errorf("the details of the error are %v", e)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err = b.acquire(ctx, &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"job"}}}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a wait beyond the deadline ended with %v", err)
	}
	waitForWaiters(t, api, "job", 0) // the deadline went along: no ticket is left

	if _, err := admin.Revoke(patient(t), &pb.RevokeRequest{Target: &pb.RevokeRequest_Name{Name: "job"}, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	k, err := api.KeepAlive(patient(t), &pb.KeepAliveRequest{Session: a.session, Secret: a.secret})
	if err != nil || len(k.GetChanges()) != 1 || k.GetChanges()[0].GetSeq() != held.GetSeq() || k.GetChanges()[0].GetBy() == "" {
		t.Errorf("after the revocation: %v, %v", k, err)
	}
	a.close()

	st, err := admin.Status(patient(t), &pb.StatusRequest{})
	if err != nil || st.GetNode() == st.GetLeader() || st.GetLeaderAddress() != leader.address || len(st.GetMembers()) != 3 || st.GetVersion() != "test" {
		t.Errorf("the status of a follower is its own: %v, %v", st, err)
	}
}

func TestACallThatWasPassedOnIsNotPassedOnAgain(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	leader := c.leader()
	ctx := metadata.AppendToOutgoingContext(patient(t), "lockstep-forwarded-by", "n9")
	_, err := locks(t, c.follower()).OpenSession(ctx, &pb.OpenSessionRequest{})
	if e := wantReason(t, err, pb.Reason_REASON_NOT_LEADER); e.GetLeaderAddress() != leader.address {
		t.Errorf("sent to %q, want %q", e.GetLeaderAddress(), leader.address)
	}
	if code := status.Code(err); code != codes.Unavailable {
		t.Errorf("code %v, want Unavailable", code)
	}
}

func TestCallsAtAFollowerGoToTheNextLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	first := c.leader()
	var api pb.LockServiceClient
	for _, m := range c.nodes {
		if m != first {
			api = locks(t, m)
		}
	}
	a := newCaller(t, api, &pb.OpenSessionRequest{TtlMs: 60_000})
	held := a.take("job")
	first.stop()
	eventually(t, func() error {
		r, err := api.GetLock(patient(t), &pb.GetLockRequest{Name: "job"})
		if err != nil {
			return err
		}
		if h := r.GetLock().GetHolders(); len(h) != 1 || h[0].GetToken() != held.GetToken() {
			return fmt.Errorf("the holders are %v", h)
		}
		return nil
	})
}

// One client must not keep the others of a follower waiting: its calls on a held lock take half of
// the places at most.
func TestAnAddressHasHalfOfTheCallsThatAreForwarded(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3, limits: service.Limits{StreamsPerConnection: 8}})
	api := locks(t, c.follower())
	a := newCaller(t, api, &pb.OpenSessionRequest{TtlMs: 60_000})
	held := a.take("job")
	b := newCaller(t, api, &pb.OpenSessionRequest{TtlMs: 60_000})
	ctx, cancel := context.WithCancel(patient(t))
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	for range 4 {
		waiting.Go(func() {
			_, _ = b.acquire(ctx, &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{"job"}}}) // until the end of the test
		})
	}
	waitForWaiters(t, api, "job", 4)
	_, err := b.acquire(patient(t), try("other"))
	e := wantReason(t, err, pb.Reason_REASON_OVERLOADED)
	if want := "calls of clients at 127.0.0.1 that this node forwards at one time: at most 4"; !strings.HasSuffix(e.GetMessage(), want) {
		t.Errorf("the error says %q, want %q", e.GetMessage(), want)
	}
	if err := a.release(held); err != nil { // has a connection of its own
		t.Error(err)
	}
}
