package faulttest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/sim/faulttest"
)

// renewals counts the confirmed keepalives of a client.
type renewals struct{ count atomic.Int64 }

func (r *renewals) Observe(e client.Event) {
	if e.Kind == client.Renewed {
		r.count.Add(1)
	}
}

// TestARevocationWhileTheStreamIsBroken revokes a lock at once while its holder hears nothing, and
// lets the network heal before the lease ends. The session survives; the lock must be gone by the
// first keepalive that is confirmed after that.
func TestARevocationWhileTheStreamIsBroken(t *testing.T) {
	t.Parallel() // it mostly waits
	cluster := faulttest.Start(t, 3)
	var proxies []*testbed.Proxy
	var behind []string
	for _, endpoint := range cluster.Endpoints() {
		p := faulttest.NewProxy(t, endpoint)
		proxies, behind = append(proxies, p), append(behind, p.Address())
	}
	seen := new(renewals)
	holder := newClient(t, client.Config{
		Endpoints: behind, TTL: 24 * time.Second, Observer: seen,
		DialOptions: proxied(cluster.Endpoints(), behind),
	})
	lock, err := holder.Acquire(t.Context(), "revoked/lock", lockstep.WithWait(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range proxies {
		p.Cut()
	}
	revoke(t, cluster, "revoked/lock")
	next := newClient(t, client.Config{Endpoints: cluster.Endpoints()})
	other, err := next.Acquire(t.Context(), "revoked/lock", lockstep.WithWait(15*time.Second))
	if err != nil {
		t.Fatalf("the lock was revoked at once, but the next got %v", err)
	}
	if other.Token() <= lock.Token() {
		t.Errorf("token %d after %d", other.Token(), lock.Token())
	}
	if err := lock.Check(); err != nil {
		t.Fatalf("void: the holder lost the lock before the network healed: %v", err)
	}
	before := seen.count.Load()
	for _, p := range proxies {
		p.Heal()
	}
	believesUntilRenewed(t, lock, seen, before)
	var loss *lockstep.LossError
	if cause := context.Cause(lock.Context()); !errors.As(cause, &loss) || loss.Reason != lockstep.Revoked || loss.By != "tester" {
		t.Errorf("cause = %v, want revoked by tester", cause)
	}
}

// believesUntilRenewed fails if the lock is still believed in after a later renewal was confirmed.
func believesUntilRenewed(t *testing.T, lock lockstep.Lock, seen *renewals, before int64) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		renewed := seen.count.Load() > before
		if err := lock.Check(); err != nil {
			return
		}
		if renewed {
			t.Fatal("a keepalive was confirmed and the holder still believes in the revoked lock")
		}
		select {
		case <-deadline:
			t.Fatal("the holder neither renewed nor lost the lock")
		case <-time.After(time.Millisecond):
		}
	}
}

func newClient(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Logf("close: %v", err)
		}
	})
	return c
}

func revoke(t *testing.T, cluster *faulttest.Cluster, name string) {
	t.Helper()
	admin, err := client.NewAdmin(client.Config{Endpoints: cluster.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ended, err := admin.RevokeLock(t.Context(), name, client.Revocation{By: "tester", Reason: "trial", Now: true})
	if err != nil || ended != 1 {
		t.Fatalf("revoked %d claims, %v, want 1", ended, err)
	}
}
