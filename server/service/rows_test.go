package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// Inputs whose form is correct, but that services get wrong.

func TestTheSameClaimTwiceAtOnceIsOneEntryOfTheQueue(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	l, api := connect(t, m), locks(t, m)
	a, b := l.open(60_000), l.open(60_000)
	held := l.granted(a.GetSession(), 1, "x")
	l.send(acquire(5, b.GetSession(), 1, "x"), acquire(6, b.GetSession(), 1, "x"))
	l.send(acquire(7, b.GetSession(), 1, "x"))
	for _, tag := range []uint64{5, 6, 7} {
		if c := l.answer(tag).GetClaim(); c.GetState() != pb.ClaimState_CLAIM_STATE_QUEUED || c.GetPosition() != 1 {
			t.Errorf("tag %d: %v", tag, c)
		}
	}
	waitForWaiters(t, api, "x", 1)
	l.send(release(8, a.GetSession(), held), acquire(9, b.GetSession(), 1, "x"))
	if c := l.answer(9).GetClaim(); c.GetState() != pb.ClaimState_CLAIM_STATE_GRANTED {
		t.Errorf("asked again, the claim is %v", c)
	}
}

func TestClaimsOfOneSessionExcludeEachOther(t *testing.T) {
	t.Parallel()
	l := connect(t, startNode(t))
	o := l.open(60_000)
	l.granted(o.GetSession(), 1, "x")
	l.send(acquire(2, o.GetSession(), 2, "x"), acquireSpec(3, o.GetSession(), 3, &pb.ClaimSpec{Names: []string{"x"}, WaitMs: proto.Uint64(0)}))
	if c := l.answer(2).GetClaim(); c.GetState() != pb.ClaimState_CLAIM_STATE_QUEUED {
		t.Errorf("a second claim is %v, want it queued", c)
	}
	if c := l.answer(3).GetClaim(); c.GetState() != pb.ClaimState_CLAIM_STATE_BUSY || c.GetHolders()[0].GetSession() != o.GetSession() {
		t.Errorf("a try is %v, want BUSY naming the own claim", c)
	}
}

func TestTwoThatWaitForEachOtherEndAtTheirDeadlines(t *testing.T) {
	t.Parallel()
	api := locks(t, startNode(t))
	a, b := newCaller(t, api, &pb.OpenSessionRequest{}), newCaller(t, api, &pb.OpenSessionRequest{})
	a.take("x")
	b.take("y")
	ends := make(chan error, 2)
	for _, c := range []struct {
		caller *caller
		name   string
	}{{a, "y"}, {b, "x"}} {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := c.caller.acquire(ctx, &pb.AcquireRequest{Spec: &pb.ClaimSpec{Names: []string{c.name}}})
			ends <- err
		}()
	}
	for range 2 {
		if err := <-ends; status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a wait ended with %v", err)
		}
	}
	waitForWaiters(t, api, "x", 0)
	waitForWaiters(t, api, "y", 0)
}

func TestAFloodOfKeepAlivesWritesNothingToTheLog(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	l := connect(t, m)
	o := l.open(60_000)
	before := m.Status().Applied
	const n = 20_000
	go func() {
		for i := range n / 500 {
			frame := make([]*pb.ClientRequest, 500)
			for j := range frame {
				frame[j] = keepAlive(1, o.GetSession(), uint64(500*i+j))
			}
			if l.grpc.Send(&pb.ClientFrame{Requests: frame}) != nil {
				return
			}
		}
	}()
	for range n {
		switch e := l.event(); {
		case e.GetKept() != nil, e.GetError().GetReason() == pb.Reason_REASON_OVERLOADED:
		default:
			t.Fatalf("got %v", e)
		}
	}
	if after := m.Status().Applied; after-before > 10 {
		t.Errorf("%d keepalives took %d log entries", n, after-before)
	}
}

func TestTheLocksOfAClientThatVanishesAreFreedByItsTTL(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	conn := dial(t, m.address)
	g, err := pb.NewLockServiceClient(conn).Session(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	l := &link{t: t, grpc: g}
	o := l.open(1000)
	l.send(acquire(1, o.GetSession(), 1, "x")) // and nobody waits for the answer
	conn.Close()
	api := locks(t, m)
	next := newCaller(t, api, &pb.OpenSessionRequest{})
	next.take("x")
	eventually(t, func() error {
		if n := m.Status().Counts.Sessions; n != 1 {
			return fmt.Errorf("%d sessions", n)
		}
		return nil
	})
}

func TestSharedHoldersHaveOneTokenAndPermitsNone(t *testing.T) {
	t.Parallel()
	l := connect(t, startNode(t))
	o := l.open(60_000)
	shared := func(tag, seq uint64) *pb.ClientRequest {
		return acquireSpec(tag, o.GetSession(), seq, &pb.ClaimSpec{Names: []string{"x"}, Mode: pb.Mode_MODE_SHARED})
	}
	l.send(shared(1, 1), shared(2, 2))
	a, b := l.answer(1).GetClaim(), l.answer(2).GetClaim()
	if a.GetToken() == 0 || a.GetToken() != b.GetToken() {
		t.Errorf("shared holders have the tokens %d and %d", a.GetToken(), b.GetToken())
	}
	l.send(acquireSpec(3, o.GetSession(), 3, &pb.ClaimSpec{Names: []string{"x"}, Mode: pb.Mode_MODE_PERMITS, Weight: 1, Capacity: 2}))
	if e := l.answer(3).GetError(); e.GetReason() != pb.Reason_REASON_MODE_MISMATCH {
		t.Errorf("permits of a lock: %v", e)
	}
}

func TestSeveralNamesAreTakenTogether(t *testing.T) {
	t.Parallel()
	m := startNode(t)
	l, api := connect(t, m), locks(t, m)
	o := l.open(60_000)
	l.send(acquire(1, o.GetSession(), 1, "team/a", "team/b"))
	c := l.answer(1).GetClaim()
	for _, name := range []string{"team/a", "team/b"} {
		h := lock(t, api, name).GetHolders()
		if len(h) != 1 || h[0].GetToken() != c.GetToken() || len(h[0].GetNames()) != 2 {
			t.Errorf("%s is held by %v", name, h)
		}
	}
}
