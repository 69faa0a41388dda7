package service_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

const elsewhere = "00112233445566778899aabbccddeeff" // a cluster that does not exist

// told returns the cluster id that an answer came with.
func told(md metadata.MD) string { return fmt.Sprint(slices.Compact(md.Get(protocol.ClusterKey))) }

func TestEveryAnswerTellsTheCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	leader, follower := c.leader(), c.follower()
	want := fmt.Sprint([]string{leader.Status().ClusterID})
	for _, m := range []*member{leader, follower} {
		conn, name := dial(t, m.address), m.Status().Name
		api, admin := pb.NewLockServiceClient(conn), pb.NewAdminServiceClient(conn)
		var md metadata.MD
		calls := map[string]func(...grpc.CallOption) error{
			"OpenSession": func(o ...grpc.CallOption) error {
				_, err := api.OpenSession(patient(t), &pb.OpenSessionRequest{}, o...)
				return err
			},
			"GetLock": func(o ...grpc.CallOption) error {
				_, err := api.GetLock(patient(t), &pb.GetLockRequest{Name: "job"}, o...)
				return err
			},
			"Status": func(o ...grpc.CallOption) error {
				_, err := admin.Status(patient(t), &pb.StatusRequest{}, o...)
				return err
			},
		}
		for what, call := range calls {
			if err := call(grpc.Header(&md)); err != nil || told(md) != want {
				t.Errorf("%s of %s: told %s, %v; want %s", what, name, told(md), err, want)
			}
		}
		if _, err := api.GetLock(patient(t), &pb.GetLockRequest{Name: "/"}, grpc.Header(&md)); err == nil || told(md) != want {
			t.Errorf("an error of %s: told %s, %v; want %s", name, told(md), err, want)
		}
		w, err := api.Watch(patient(t), &pb.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if md, err := w.Header(); err != nil || told(md) != want {
			t.Errorf("a watch of %s: told %s, %v; want %s", name, told(md), err, want)
		}
		s, err := api.Session(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(&pb.ClientFrame{Requests: []*pb.ClientRequest{{Tag: 1, Body: &pb.ClientRequest_Open{Open: &pb.StreamOpen{TtlMs: 5000}}}}})
		_, _ = s.Recv() // a follower ends the stream
		if md, err := s.Header(); err != nil || told(md) != want {
			t.Errorf("a session of %s: told %s, %v; want %s", name, told(md), err, want)
		}
	}
}

func TestACallForAnotherClusterDoesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 2})
	a := newCaller(t, locks(t, c.leader()), &pb.OpenSessionRequest{TtlMs: 60_000})
	a.take("job")
	for _, m := range []*member{c.leader(), c.follower()} {
		conn := dial(t, m.address)
		api, admin := pb.NewLockServiceClient(conn), pb.NewAdminServiceClient(conn)
		ctx := metadata.AppendToOutgoingContext(patient(t), protocol.ClusterKey, elsewhere)
		_, err := admin.Revoke(ctx, &pb.RevokeRequest{Target: &pb.RevokeRequest_Name{Name: "job"}, Reason: "test"})
		wantReason(t, err, pb.Reason_REASON_WRONG_CLUSTER)
		w, err := api.Watch(ctx, &pb.WatchRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		wantReason(t, err, pb.Reason_REASON_WRONG_CLUSTER)
		s, err := api.Session(ctx)
		if err == nil {
			_, err = s.Recv()
		}
		wantReason(t, err, pb.Reason_REASON_WRONG_CLUSTER)

		ctx = metadata.AppendToOutgoingContext(patient(t), protocol.ClusterKey, m.Status().ClusterID)
		if l, err := api.GetLock(ctx, &pb.GetLockRequest{Name: "job"}); err != nil || len(l.GetLock().GetHolders()) != 1 {
			t.Errorf("a call for this cluster: %v, %v; want the holder", l, err)
		}
	}
}

// refusedWatch expects the watch to be refused at once.
func refusedWatch(t *testing.T, api pb.LockServiceClient, r *pb.WatchRequest) *pb.Error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := api.Watch(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Recv()
	return wantReason(t, err, pb.Reason_REASON_OUT_OF_RANGE)
}

func TestAWatchBeginsOnlyInItsOwnHistory(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	a := newCaller(t, locks(t, c.leader()), &pb.OpenSessionRequest{TtlMs: 60_000})
	if err := a.release(a.take("team/job")); err != nil {
		t.Fatal(err)
	}
	own := c.leader().Status().ClusterID
	for _, m := range []*member{c.leader(), c.follower()} {
		api := locks(t, m)
		for name, r := range map[string]*pb.WatchRequest{
			"another cluster's number": {Cluster: elsewhere, After: 1},
			"a number of the future":   {After: 999_999_999},
			"one of this cluster":      {Cluster: own, After: 3},
		} {
			e := refusedWatch(t, api, r)
			field := "after"
			if r.GetCluster() == elsewhere {
				field = "cluster"
			}
			if e.GetField() != field || e.GetOldest() != 0 || e.GetNewest() != 2 {
				t.Errorf("%s: field %q, oldest %d, newest %d; want %q, 0 and 2", name, e.GetField(), e.GetOldest(), e.GetNewest(), field)
			}
		}
		for _, r := range []*pb.WatchRequest{{FromOldest: true}, {FromOldest: true, Cluster: own}} {
			w, err := api.Watch(patient(t), r)
			if err != nil {
				t.Fatal(err)
			}
			if e := received(t, w)[0]; e.GetNumber() != 1 {
				t.Errorf("the oldest event: %v, want number 1", e)
			}
		}
		w, err := api.Watch(patient(t), &pb.WatchRequest{Cluster: own, After: 2})
		if err != nil {
			t.Fatal(err)
		}
		if first, err := w.Recv(); err != nil || first.GetReached() != 2 {
			t.Errorf("behind the newest: %v, %v", first, err)
		}
	}
}

func TestAReadTellsAfterWhichEventToWatch(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	api := locks(t, m)
	for want := uint64(0); want < 3; want++ {
		l, err := api.GetLock(patient(t), &pb.GetLockRequest{Name: "other"})
		if err != nil || l.NewestEvent == nil || l.GetNewestEvent() != want {
			t.Fatalf("newest event %v, %v; want %d", l.NewestEvent, err, want)
		}
		newCaller(t, api, &pb.OpenSessionRequest{TtlMs: 60_000}).take(fmt.Sprint("job", want))
	}
}

func TestAWatchOfWhatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	for field, r := range map[string]*pb.WatchRequest{
		"cluster": {Cluster: "prod"},
		"after":   {FromOldest: true, After: 1},
	} {
		w, err := api.Watch(patient(t), r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Recv()
		if e := wantReason(t, err, pb.Reason_REASON_INVALID_ARGUMENT); e.GetField() != field {
			t.Errorf("field %q, want %q", e.GetField(), field)
		}
	}
}

// TestALaggingNodeMakesAWatchWait has a watcher that comes from a node that was further.
func TestALaggingNodeMakesAWatchWait(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	a := newCaller(t, locks(t, c.leader()), &pb.OpenSessionRequest{TtlMs: 60_000})
	follower := locks(t, c.follower())
	for n := uint64(1); n <= 40; n += 2 {
		if err := a.release(a.take("job")); err != nil { // the leader knows the event first
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(patient(t), 10*time.Second)
		w, err := follower.Watch(ctx, &pb.WatchRequest{After: n + 1})
		if err != nil {
			t.Fatal(err)
		}
		if first, err := w.Recv(); err != nil || first.GetReached() != n+1 {
			t.Fatalf("after %d, which was answered: %v, %v", n+1, first, err)
		}
		cancel()
	}
}
