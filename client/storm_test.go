package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
)

// held is what the service answers to a claim while it grants nothing.
func held(after time.Duration) *pb.Error {
	return &pb.Error{Reason: pb.Reason_REASON_UNAVAILABLE, Message: "the cluster is not ready to grant yet", RetryAfterMs: uint64(after.Milliseconds())}
}

func TestAClientThatMayNotBeGrantedYetKeepsItsConnection(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	const wait = 1500 * time.Millisecond
	ready := time.Now().Add(wait)
	cluster.Do(func(s *wirefake.Service) { s.Held = held(wait) })
	time.AfterFunc(wait, func() { cluster.Do(func(s *wirefake.Service) { s.Held = nil }) })
	c := newClient(t, nodes)
	acquire(t, c, "a")
	if late := time.Since(ready); late < 0 || late > time.Second {
		t.Errorf("granted %v after the service was ready", late)
	}
	if got := cluster.Streams(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

func TestATryIsToldAtOnceThatNothingIsGranted(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	cluster.Do(func(s *wirefake.Service) { s.Held = held(time.Minute) })
	c := newClient(t, nodes)
	began := time.Now()
	_, err := c.Acquire(t.Context(), "a", lockstep.WithWait(0))
	if !errors.Is(err, lockstep.ErrUnavailable) || time.Since(began) > time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

func TestConnectionsThatGrantNothingAreNotReplacedInAStorm(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	cluster.Break(wirefake.Fail(codes.Unavailable, &pb.Error{Reason: pb.Reason_REASON_UNAVAILABLE, Message: "fake: not now"}))
	c := newClient(t, nodes)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if l, err := c.Acquire(ctx, "a"); err == nil {
		t.Fatalf("granted: %v", l)
	}
	if got := cluster.Streams(); got > 10 {
		t.Errorf("%d connections in 3 s", got)
	}
}
