package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
)

// held is the service's answer to a claim while it grants nothing.
func held(after time.Duration) *pb.Error {
	return &pb.Error{Reason: pb.Reason_REASON_UNAVAILABLE, Message: "the cluster is not ready to grant locks yet", RetryAfterMs: uint64(after.Milliseconds())}
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

func TestALeaseOutlivesConnectionsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes, func(cfg *client.Config) { cfg.TTL, cfg.UnavailableAfter = 3*time.Second, time.Minute })
	held := acquire(t, c, "a")
	cluster.Break(wirefake.Fail(codes.Unavailable, &pb.Error{Reason: pb.Reason_REASON_UNAVAILABLE, Message: "fake: not now"}))
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second) // the unbounded waits are longer than the lease by then
	defer cancel()
	if l, err := c.Acquire(ctx, "b"); err == nil {
		t.Fatalf("granted: %v", l)
	}
	if err := held.Check(); err != nil {
		t.Error(err)
	}
	if got := cluster.Streams(); got > 40 {
		t.Errorf("%d connections in 9 s", got)
	}
}

func TestABoundedWaitEndsByTheClientsClockAcrossAChangeOfLeader(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	holder, waiter := newClient(t, nodes, longLease), newClient(t, nodes, longLease)
	held := acquire(t, holder, "a")
	const wait = 3 * time.Second
	time.AfterFunc(time.Second, func() { cluster.Lead(nodes[1]) }) // the fake never ends a wait, like a new leader that restarts it
	began := time.Now()
	_, err := waiter.Acquire(t.Context(), "a", lockstep.WithWait(wait))
	took := time.Since(began)
	if !errors.Is(err, lockstep.ErrBusy) || took < wait-wait/100 || took > wait+wait/50 { // 1 %, and as much for a busy machine
		t.Errorf("%v after %v, want busy after %v", err, took, wait)
	}
	until(t, "an empty queue", func() bool {
		n := 1
		cluster.Do(func(s *wirefake.Service) { n = s.Waiters("a") })
		return n == 0
	})
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAGrantInTheLastMomentOfAWaitIsGivenBackOrHandedOut(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	holder, waiter := newClient(t, nodes, longLease), newClient(t, nodes, longLease)
	const wait = 100 * time.Millisecond
	for i := range 40 {
		held := acquire(t, holder, "a")
		time.AfterFunc(wait+time.Duration(i-20)*100*time.Microsecond, func() { held.Release(context.WithoutCancel(t.Context())) })
		l, err := waiter.Acquire(t.Context(), "a", lockstep.WithWait(wait))
		switch {
		case err == nil:
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, lockstep.ErrBusy):
			t.Error(err)
		}
		until(t, "a free lock", func() bool {
			id := ""
			cluster.Do(func(s *wirefake.Service) { id, _, _ = s.Holder("a") })
			return id == ""
		})
	}
}

func TestABoundedWaitWhileNothingIsGrantedSaysWhy(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	cluster.Do(func(s *wirefake.Service) { s.Held = held(time.Minute) })
	c := newClient(t, nodes)
	began := time.Now()
	_, err := c.Acquire(t.Context(), "a", lockstep.WithWait(time.Second))
	if took := time.Since(began); !errors.Is(err, lockstep.ErrUnavailable) || !strings.Contains(err.Error(), "not ready") || took > 1100*time.Millisecond {
		t.Errorf("%v after %v", err, took)
	}
}
