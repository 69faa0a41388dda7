package service_test

import (
	"testing"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// received waits for a message with events from a watch.
func received(t *testing.T, w pb.LockService_WatchClient) []*pb.Event {
	t.Helper()
	for {
		r, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(r.GetEvents()) > 0 {
			return r.GetEvents()
		}
	}
}

func TestEveryNodeServesAWatchFromWhatItHasApplied(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 3})
	a := newCaller(t, locks(t, c.leader()), &pb.OpenSessionRequest{TtlMs: 60_000})
	var watches []pb.LockService_WatchClient
	for _, m := range c.nodes {
		w, err := locks(t, m).Watch(patient(t), &pb.WatchRequest{Prefix: "team/"})
		if err != nil {
			t.Fatal(err)
		}
		if first, err := w.Recv(); err != nil || len(first.GetEvents()) > 0 {
			t.Fatalf("a watch begins with %v, %v", first, err)
		}
		watches = append(watches, w)
	}
	a.take("other")
	claim := a.take("team/job")
	if err := a.release(claim); err != nil {
		t.Fatal(err)
	}
	for i, w := range watches {
		var got []*pb.Event
		for len(got) < 2 {
			got = append(got, received(t, w)...)
		}
		if got[0].GetKind() != pb.EventKind_EVENT_KIND_GRANTED || got[1].GetKind() != pb.EventKind_EVENT_KIND_RELEASED ||
			got[0].GetToken() != claim.GetToken() || got[1].GetNumber() != got[0].GetNumber()+1 {
			t.Errorf("node %d: %v", i, got)
		}
		again, err := locks(t, c.nodes[i]).Watch(patient(t), &pb.WatchRequest{After: got[0].GetNumber()})
		if err != nil {
			t.Fatal(err)
		}
		if e := received(t, again)[0]; e.GetNumber() != got[1].GetNumber() {
			t.Errorf("node %d: resumed with %v", i, e)
		}
	}
}

func TestAWatchOfAPrefixThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	w, err := locks(t, startNode(t)).Watch(patient(t), &pb.WatchRequest{Prefix: "a\x1b"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Recv()
	if e := wantReason(t, err, pb.Reason_REASON_INVALID_ARGUMENT); e.GetField() != "prefix" {
		t.Errorf("field %q", e.GetField())
	}
}
