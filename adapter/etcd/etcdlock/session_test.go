package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// startBackend returns the backend of a Locker on its own etcd.
func startBackend(t *testing.T) *backend {
	t.Helper()
	c, err := etcdserver.Start(t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cli, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	b := newBackend(cli, Config{TTL: 5 * time.Second}.withDefaults())
	t.Cleanup(func() { b.Close(context.Background()) })
	return b
}

func claimOn(id, name string) *locker.Claim {
	return &locker.Claim{AcquireConfig: lockstep.AcquireConfig{Names: []string{name}}, ID: id}
}

// A claim waited, its lease ended, and only then the claim ahead of it went away: etcd#11456.
func TestAClaimWhoseLeaseEndedWhileItWaitedIsNotGranted(t *testing.T) {
	b := startBackend(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := b.current(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first, second := newClaim(b, s, claimOn("1", "x")), newClaim(b, s, claimOn("2", "x"))
	if v, err := first.create(ctx); err != nil || v.token == 0 {
		t.Fatalf("the first claim sees %+v, err %v", v, err)
	}
	v, err := second.create(ctx)
	if err != nil || v.ahead != first.key {
		t.Fatalf("the second claim sees %+v, err %v", v, err)
	}
	if _, err := b.cli.Revoke(ctx, s.id); err != nil {
		t.Fatal(err)
	}
	if err := b.deletion(ctx, v.ahead, v.revision); err != nil {
		t.Fatal(err)
	}
	if v, err := second.look(ctx); !errors.Is(err, lockstep.ErrLost) || v.token != 0 {
		t.Errorf("after its lease has ended it sees %+v, err %v", v, err)
	}
}

// A key without the lease would hold the lock forever, so a claim whose key was overwritten does
// not hold it.
func TestAClaimWhoseKeyHasLostItsLeaseIsNotGranted(t *testing.T) {
	b := startBackend(t)
	s, err := b.current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := newClaim(b, s, claimOn("1", "x"))
	if _, err := k.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cli.Put(t.Context(), k.key, "overwritten"); err != nil {
		t.Fatal(err)
	}
	if v, err := k.look(t.Context()); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("it sees %+v, err %v", v, err)
	}
}

// Both claims were granted together with a third, which has its own token. They join at the same
// time, and the third leaves.
func TestSharedClaimsThatJoinAtTheSameTimeAgreeOnTheToken(t *testing.T) {
	b := startBackend(t)
	ctx := t.Context()
	s, err := b.current(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var claims []*claim
	var views []view
	for _, id := range []string{"1", "2", "3"} {
		c := claimOn(id, "x")
		c.Mode = lockstep.Shared
		k := newClaim(b, s, c)
		v, err := k.create(ctx)
		if err != nil || v.ahead != "" {
			t.Fatalf("claim %s sees %+v, err %v", id, v, err)
		}
		claims, views = append(claims, k), append(views, v)
	}
	if err := claims[0].drop(ctx); err != nil { // no one has copied its token yet
		t.Fatal(err)
	}
	second, err := claims[1].join(ctx, views[1])
	if err != nil {
		t.Fatal(err)
	}
	third, err := claims[2].join(ctx, views[2])
	for err == nil && third.token == 0 {
		third, err = claims[2].join(ctx, third)
	}
	if err != nil || second.token != lockstep.Token(claims[1].created) || third.token != second.token {
		t.Errorf("tokens %d and %d, the second claim has revision %d, err %v", second.token, third.token, claims[1].created, err)
	}
}
