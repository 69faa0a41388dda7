package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
)

// threeClusters returns three nodes, each its own cluster: the result of a forgotten
// --initial-cluster.
func threeClusters(t *testing.T) (clusters []*wirefake.Cluster, nodes []*wirefake.Node) {
	for range 3 {
		c, n := wirefake.Start(t, 1)
		clusters, nodes = append(clusters, c), append(nodes, n...)
	}
	return clusters, nodes
}

func longLease(cfg *client.Config) { cfg.TTL = 60 * time.Second }

// heldAnywhere reports whether the lock has a holder in any of the clusters.
func heldAnywhere(clusters []*wirefake.Cluster, name string) (held bool) {
	for _, c := range clusters {
		c.Do(func(s *wirefake.Service) {
			id, _, _ := s.Holder(name)
			held = held || id != ""
		})
	}
	return held
}

// wantTwoClusters checks that the error names two endpoints and their clusters.
func wantTwoClusters(t *testing.T, what string, err error, nodes []*wirefake.Node) {
	t.Helper()
	e, ok := errors.AsType[*client.ClusterError](err)
	if !ok || !errors.Is(err, client.ErrTwoClusters) || errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("%s: %v, want ErrTwoClusters", what, err)
		return
	}
	listed := func(address string) bool {
		return slices.ContainsFunc(nodes, func(n *wirefake.Node) bool { return n.Address() == address })
	}
	if e.Cluster == e.Want || e.Endpoint == e.WantFrom || !listed(e.Endpoint) || !listed(e.WantFrom) {
		t.Errorf("%s: %+v", what, e)
	}
}

func TestNoLockComesFromEndpointsOfSeveralClusters(t *testing.T) {
	t.Parallel()
	clusters, nodes := threeClusters(t)
	var clients sync.WaitGroup
	for range 12 {
		c := newClient(t, nodes)
		clients.Go(func() {
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err := c.Acquire(ctx, "a")
				cancel()
				wantTwoClusters(t, "acquire", err, nodes)
			}
			_, err := c.Inspect(t.Context(), "a")
			wantTwoClusters(t, "inspect", err, nodes)
			for _, err = range c.Watch(t.Context(), "a") {
			}
			wantTwoClusters(t, "watch", err, nodes)
		})
	}
	clients.Wait()
	until(t, "free lock", func() bool { return !heldAnywhere(clusters, "a") })
}

func TestAClaimThatWaitsFailsWhenTheEndpointsAreOfTwoClusters(t *testing.T) {
	t.Parallel()
	clusters, nodes := threeClusters(t)
	for _, n := range nodes { // whichever the client reaches first
		holder := newClient(t, []*wirefake.Node{n}, longLease)
		acquire(t, holder, "a")
	}
	c := newClient(t, nodes)
	_, err := c.Acquire(t.Context(), "a")
	wantTwoClusters(t, "acquire", err, nodes)
	for _, k := range clusters {
		until(t, "end of the waiting", func() bool {
			waiting := 0
			k.Do(func(s *wirefake.Service) { waiting = s.Waiters("a") })
			return waiting == 0
		})
	}
}

func TestAnAdminDoesNothingWithEndpointsOfSeveralClusters(t *testing.T) {
	t.Parallel()
	clusters, nodes := threeClusters(t)
	cfg := client.Config{}
	for _, n := range nodes {
		acquire(t, newClient(t, []*wirefake.Node{n}, longLease), "a")
		cfg.Endpoints = append(cfg.Endpoints, n.Address())
	}
	how := client.Revocation{By: "ops", Reason: "test"}
	for what, call := range map[string]func(*client.Admin) error{
		"lock":    func(a *client.Admin) error { _, err := a.Lock(t.Context(), "a", 0); return err },
		"locks":   func(a *client.Admin) error { _, _, err := a.Locks(t.Context(), "", "", 0); return err },
		"history": func(a *client.Admin) error { _, _, err := a.History(t.Context(), "a", 0); return err },
		"revoke":  func(a *client.Admin) error { _, err := a.RevokeLock(t.Context(), "a", how); return err },
		"session": func(a *client.Admin) error {
			_, err := a.RevokeSession(t.Context(), strings.Repeat("0", 32), how)
			return err
		},
		"members": func(a *client.Admin) error { return a.RemoveMember(t.Context(), "n1", false) },
		"save":    func(a *client.Admin) error { return a.SaveSnapshot(t.Context(), io.Discard) },
		"watch": func(a *client.Admin) (err error) {
			for _, err = range a.Watch(t.Context(), "", 0) {
			}
			return err
		},
		"status": func(a *client.Admin) (err error) {
			for _, s := range a.Status(t.Context()) {
				err = errors.Join(err, s.Err)
			}
			return err
		},
	} {
		a, err := client.NewAdmin(cfg)
		if err != nil {
			t.Fatal(err)
		}
		wantTwoClusters(t, what, call(a), nodes)
		a.Close()
	}
	for i := range clusters {
		if !heldAnywhere(clusters[i:i+1], "a") {
			t.Errorf("the lock of cluster %d was revoked", i+1)
		}
	}
}

func TestANodeOfAnotherClusterThatIsNamedAsTheLeaderIsAskedForNothing(t *testing.T) {
	t.Parallel()
	a, nodes := wirefake.Start(t, 1)
	b, others := wirefake.Start(t, 1)
	a.Lead(others[0]) // its address belonged to another before
	c := newClient(t, nodes)
	_, err := c.Acquire(t.Context(), "a")
	wantTwoClusters(t, "acquire", err, append(nodes, others...))
	if frames, _ := b.Received(); frames != 0 {
		t.Errorf("%d frames came to the other cluster", frames)
	}
	_, err = c.Inspect(t.Context(), "a")
	wantTwoClusters(t, "inspect", err, append(nodes, others...))
}

func TestALockThatIsHeldStaysInItsClusterWhenAnotherTurnsUp(t *testing.T) {
	t.Parallel()
	a, nodes := wirefake.Start(t, 2)
	b, others := wirefake.Start(t, 1)
	b.SetID(a.ID()) // a node of the cluster, for now
	b.Lead(nodes[0])
	c := newClient(t, append(slices.Clone(nodes), others...), func(cfg *client.Config) { cfg.TTL = 5 * time.Second })
	l := acquire(t, c, "a")
	b.SetID(strings.Repeat("f", 32))
	b.Lead(others[0])
	a.Lead(nil) // the client looks for a leader, and finds the other cluster
	failed := make(chan error, 1)
	go func() {
		_, err := c.Acquire(t.Context(), "b")
		failed <- err
	}()
	wantTwoClusters(t, "acquire", <-failed, append(nodes, others...))
	a.Lead(nodes[1])
	time.Sleep(6 * time.Second) // more than the TTL
	if err := l.Check(); err != nil {
		t.Errorf("the lock that was held: %v", err)
	}
	if heldAnywhere([]*wirefake.Cluster{b}, "a") || heldAnywhere([]*wirefake.Cluster{b}, "b") {
		t.Error("a lock came from the other cluster")
	}
	b.SetID(a.ID()) // corrected
	b.Lead(nodes[1])
	acquire(t, c, "b")
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAClientGoesOverToTheClusterThatARestoreHasMade(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	c := newClient(t, nodes, longLease)
	old := cluster.ID()
	held := acquire(t, c, "a")
	waiting := make(chan error, 1)
	go func() {
		l, err := newClient(t, nodes).Acquire(t.Context(), "a")
		if err == nil && !strings.HasPrefix(l.Name(), "a") {
			err = errors.New(l.Name())
		}
		waiting <- err
	}()
	until(t, "waiter", func() bool {
		n := 0
		cluster.Do(func(s *wirefake.Service) { n = s.Waiters("a") })
		return n == 1
	})
	cluster.Replace()
	if loss := lost(t, held); loss.Reason != lockstep.RecordMissing || !strings.Contains(loss.Detail, old) {
		t.Errorf("the lock of the old cluster: %+v, want its record missing, long before the end of its lease", loss)
	}
	if err := <-waiting; err != nil {
		t.Errorf("the claim that waited: %v", err)
	}
	if l := acquire(t, c, "b"); l.Check() != nil || c.Cluster() != cluster.ID() || c.Cluster() == old {
		t.Errorf("afterwards: check %v, cluster %s, want %s", l.Check(), c.Cluster(), cluster.ID())
	}
	if named := cluster.Named(); named[len(named)-1] != cluster.ID() {
		t.Errorf("requests name %s", named[len(named)-1])
	}
}

func TestAClientStaysWithTheClusterThatItWasGiven(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	wrong := newClient(t, nodes, func(cfg *client.Config) { cfg.Cluster = strings.Repeat("e", 32) })
	if _, err := wrong.Acquire(t.Context(), "a"); !errors.Is(err, client.ErrTwoClusters) || !strings.Contains(err.Error(), cluster.ID()) {
		t.Errorf("another cluster than this: %v", err)
	}
	if frames, _ := cluster.Received(); frames != 0 {
		t.Errorf("%d frames were sent", frames)
	}
	c := newClient(t, nodes, func(cfg *client.Config) { cfg.Cluster, cfg.TTL = cluster.ID(), 3*time.Second })
	l := acquire(t, c, "a")
	cluster.Replace()
	if loss := lost(t, l); loss.Reason != lockstep.LeaseEnded {
		t.Errorf("%+v", loss)
	}
	if _, err := c.Acquire(t.Context(), "a"); !errors.Is(err, client.ErrTwoClusters) {
		t.Errorf("after the restore: %v", err)
	}
}

func TestANodeThatDoesNotTellItsClusterIsBelieved(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	id := cluster.ID()
	cluster.SetID("")
	c := newClient(t, nodes, longLease)
	l := acquire(t, c, "a")
	if _, err := c.Inspect(t.Context(), "a"); err != nil || c.Cluster() != "" {
		t.Errorf("inspect: %v, cluster %q", err, c.Cluster())
	}
	cluster.SetID(id) // an upgrade
	cluster.Lead(nodes[1])
	until(t, "cluster", func() bool { return c.Cluster() == id })
	cluster.SetID("") // and back
	cluster.Lead(nodes[2])
	if err := acquire(t, c, "b").Release(t.Context()); err != nil || l.Check() != nil {
		t.Errorf("release %v, check %v", err, l.Check())
	}
}

func TestAHandleIsForItsCluster(t *testing.T) {
	t.Parallel()
	a, nodes := wirefake.Start(t, 1)
	_, others := wirefake.Start(t, 1)
	first := newClient(t, nodes, longLease)
	h := detach(t, first, acquire(t, first, "a"))
	if _, err := newClient(t, others).Attach(t.Context(), h); !errors.Is(err, client.ErrTwoClusters) || !strings.Contains(err.Error(), a.ID()) {
		t.Errorf("attach at another cluster: %v", err)
	}
	if _, err := newClient(t, append(slices.Clone(nodes), others...)).Attach(t.Context(), h); !errors.Is(err, client.ErrTwoClusters) {
		t.Errorf("attach with endpoints of both: %v", err)
	}
	l, err := newClient(t, nodes).Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// silent returns an address that accepts connections but never answers.
func silent(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestAGrantDoesNotWaitLongForANodeThatHangs(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 2)
	hangs := silent(t)
	for _, c := range []struct {
		nodes []*wirefake.Node
		most  time.Duration
	}{
		{nodes, 700 * time.Millisecond}, // a majority agrees: 100 ms more, and 500 ms if the client tried the silent one first
		{nodes[:1], 3 * time.Second},    // no majority
	} {
		k := newClient(t, c.nodes, func(cfg *client.Config) { cfg.Endpoints = append(cfg.Endpoints, hangs) })
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := k.Acquire(ctx, "a/"+strings.Repeat("x", len(c.nodes))); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > c.most+time.Second { // plus slack for a busy machine
			t.Errorf("with %d nodes and one that hangs: %v", len(c.nodes), took)
		}
	}
}

func TestASessionOfTheNewClusterIsNotBegunOnTheStreamOfTheOldOne(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	c := newClient(t, nodes, longLease)
	held := acquire(t, c, "a")
	streams, old := cluster.Streams(), cluster.ID()
	cluster.SetID(strings.Repeat("d", 32)) // the endpoints lead to another cluster, but the old stream is still up
	if _, err := c.Inspect(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if loss := lost(t, held); loss.Reason != lockstep.RecordMissing || !strings.Contains(loss.Detail, old) {
		t.Errorf("the lock of the old cluster: %+v", loss)
	}
	acquire(t, c, "b")
	if named := cluster.Named(); cluster.Streams() == streams || named[len(named)-1] != cluster.ID() {
		t.Errorf("%d streams, before the new session %d; the last request names %s", cluster.Streams(), streams, named[len(named)-1])
	}
}

func TestAGrantDoesNotOutlastTheCallersContext(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes, longLease, func(cfg *client.Config) { cfg.Endpoints = append(cfg.Endpoints, silent(t)) })
	ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond) // a connection may take 500 ms, and the silent one delays a grant by 3 s
	defer cancel()
	began := time.Now()
	_, err := c.Acquire(ctx, "a")
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 2500*time.Millisecond {
		t.Errorf("%v after %v", err, took)
	}
	until(t, "free lock", func() bool { return !heldAnywhere([]*wirefake.Cluster{cluster}, "a") })
}
