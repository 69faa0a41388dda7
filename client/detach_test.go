package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
)

func detach(t *testing.T, c *client.Client, l lockstep.Lock) lockstep.Handle {
	t.Helper()
	h, err := c.Detach(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(l.Context()); !errors.Is(cause, lockstep.ErrDetached) || l.Check() == nil || l.Remaining() != 0 {
		t.Errorf("the detached lock: cause %v, check %v, remaining %v", cause, l.Check(), l.Remaining())
	}
	if err := l.Release(t.Context()); !errors.Is(err, lockstep.ErrDetached) {
		t.Errorf("release of a detached lock: %v", err)
	}
	return h
}

func TestALockPassesThroughManyHands(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	ttl := func(c *client.Config) { c.TTL = 4 * time.Second }
	first := newClient(t, nodes, ttl)
	l := acquire(t, first, "a")
	token := l.Token()
	h := detach(t, first, l)
	for range 4 { // each like a separate process
		c := newClient(t, nodes, ttl)
		l, err := c.Attach(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if l.Name() != "a" || l.Token() != token || l.Check() != nil || l.Remaining() <= time.Second {
			t.Errorf("attached %s with token %d, check %v, %v left", l.Name(), l.Token(), l.Check(), l.Remaining())
		}
		detach(t, c, l)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(1200 * time.Millisecond) // together longer than the TTL
	}
	last := newClient(t, nodes, ttl)
	l, err := last.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Release(t.Context()), l.Release(t.Context())); err != nil {
		t.Error(err)
	}
	cluster.Do(func(s *wirefake.Service) {
		if id, _, _ := s.Holder("a"); id != "" {
			t.Errorf("%s still holds the lock", id)
		}
	})
	if _, err := last.Attach(t.Context(), h); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("attach of a released lock: %v", err)
	}
}

func TestASharedSessionIsNotHandedOver(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes)
	a, b := acquire(t, c, "a"), acquire(t, c, "b")
	if _, err := c.Detach(t.Context(), a); !errors.Is(err, lockstep.ErrUnsupported) || a.Check() != nil || b.Check() != nil {
		t.Errorf("err %v, locks %v and %v", err, a.Check(), b.Check())
	}
	if err := b.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := newClient(t, nodes)
	if _, err := other.Detach(t.Context(), a); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("detach of another's lock: %v", err)
	}
	detach(t, c, a)
	if _, err := c.Detach(t.Context(), a); !errors.Is(err, lockstep.ErrDetached) {
		t.Errorf("a second detach: %v", err)
	}
	if l := acquire(t, c, "b"); l.Check() != nil { // in a new session
		t.Error(l.Check())
	}
}

func TestCloseReleasesAttachedLocks(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	a, b := newClient(t, nodes), newClient(t, nodes)
	h := detach(t, a, acquire(t, a, "a"))
	own := acquire(t, b, "b")
	l, err := b.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Check() == nil || own.Check() == nil {
		t.Error("held after Close")
	}
	acquire(t, a, "a", lockstep.WithWait(0))
	if _, err := b.Attach(t.Context(), h); !errors.Is(err, lockstep.ErrClosed) {
		t.Errorf("attach to a closed client: %v", err)
	}
}

func TestARevokedLockIsNotAttached(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	a := newClient(t, nodes)
	h := detach(t, a, acquire(t, a, "a"))
	cluster.Do(func(s *wirefake.Service) { s.Revoke("a", "ops") })
	_, err := a.Attach(t.Context(), h)
	if loss, ok := errors.AsType[*lockstep.LossError](err); !ok || loss.Reason != lockstep.Revoked || loss.By != "ops" {
		t.Errorf("err %v, want a revocation by ops", err)
	}
}

func TestALockThatCannotBeReachedStaysWhatItIs(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes, func(c *client.Config) { c.TTL, c.UnavailableAfter = 10*time.Second, 300*time.Millisecond })
	h := detach(t, c, acquire(t, c, "a"))
	nodes[0].Silence(true)
	if _, err := c.Attach(t.Context(), h); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("err %v", err)
	}
	c = newClient(t, nodes)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Attach(ctx, h); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err %v", err)
	}
	nodes[0].Silence(false)
	l, err := c.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAHandleThatIsNoneIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes)
	h := string(detach(t, c, acquire(t, c, "a")))
	for _, bad := range []string{"", "lockstep1.", "lockstep2" + h[9:], h[:len(h)-9], h + "é", "lockstep1.e30", strings.Repeat(h, 1000)} {
		_, err := c.Attach(t.Context(), lockstep.Handle(bad))
		if !errors.Is(err, lockstep.ErrInvalid) || len(err.Error()) > 200 {
			t.Errorf("%.20q...: %v", bad, err)
		}
	}
}

func TestTheOneWhoAttachesLastHasTheLock(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	a, b := newClient(t, nodes), newClient(t, nodes)
	h := detach(t, a, acquire(t, a, "a"))
	first, err := a.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if loss := lost(t, first); loss.Reason != lockstep.RecordMissing || !strings.Contains(loss.Detail, "another process") {
		t.Errorf("loss %v", loss)
	}
	time.Sleep(2 * time.Second) // longer than the lease
	if err := errors.Join(second.Check(), second.Release(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestANodeThatDoesNotTellTheNumberIsOutrun(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	cluster.Do(func(s *wirefake.Service) { s.Mute = true })
	c := newClient(t, nodes, func(c *client.Config) { c.TTL = 20 * time.Second })
	h := detach(t, c, acquire(t, c, "a"))
	cluster.Do(func(s *wirefake.Service) { s.Outrun("a", uint64(time.Now().Add(10*time.Minute).UnixMilli())) })
	began := time.Now()
	l, err := c.Attach(t.Context(), h)
	if err != nil || time.Since(began) > 4*time.Second {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAHandleThatIsInUseAllTheTimeIsToldSo(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes, func(c *client.Config) { c.TTL, c.UnavailableAfter = 10*time.Second, time.Second })
	h := detach(t, c, acquire(t, c, "a"))
	cluster.Do(func(s *wirefake.Service) { s.Outrun("a", 1<<63) })
	cluster.Do(func(s *wirefake.Service) { s.Mute = true })
	_, err := c.Attach(t.Context(), h)
	if !errors.Is(err, lockstep.ErrUnavailable) || !strings.Contains(err.Error(), "other commands keep attaching this handle") || strings.Contains(err.Error(), "no node") {
		t.Errorf("err %v", err)
	}
}

func TestAHandleDoesNotOverrideTheClusterOfTheConfig(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	a := newClient(t, nodes)
	h := detach(t, a, acquire(t, a, "a"))
	other := newClient(t, nodes, func(c *client.Config) { c.Cluster = strings.Repeat("e", 32) })
	_, err := other.Attach(t.Context(), h)
	if e, ok := errors.AsType[*client.ClusterError](err); !ok || e.Cluster != cluster.ID() || e.Want != strings.Repeat("e", 32) || !strings.Contains(err.Error(), "the handle") {
		t.Errorf("err %v", err)
	}
	same := newClient(t, nodes, func(c *client.Config) { c.Cluster = cluster.ID() })
	if _, err := same.Attach(t.Context(), h); err != nil {
		t.Error(err)
	}
}

func TestAHandleWithoutAClusterIsForTheClusterOfTheClient(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	id := cluster.ID()
	cluster.SetID("")
	a := newClient(t, nodes)
	h := detach(t, a, acquire(t, a, "a"))
	cluster.SetID(id)
	b := newClient(t, nodes, longLease)
	acquire(t, b, "b")
	cluster.SetID(strings.Repeat("d", 32))
	if _, err := b.Attach(t.Context(), h); !errors.Is(err, client.ErrTwoClusters) {
		t.Errorf("attach at another cluster than that of the client: %v", err)
	}
	cluster.SetID(id)
	if _, err := b.Attach(t.Context(), h); err != nil {
		t.Error(err)
	}
}
