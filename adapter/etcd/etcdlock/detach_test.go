package etcdlock_test

import (
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
)

func TestADetachedLockIsRenewedAndReleasedByOneHandle(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	cfg := etcdlock.Config{TTL: 3 * time.Second}
	a, b, rival := sit(t, c, cfg), sit(t, c, cfg), sit(t, c, cfg)
	other, k := acquire(t, a, "other"), acquire(t, a, "x")
	handle, err := a.Detach(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	waits := queue(t, rival, "x", 1)
	for end := time.Now().Add(2 * cfg.TTL); time.Now().Before(end); time.Sleep(cfg.TTL / 3) {
		again, err := b.Attach(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() != k.Token() {
			t.Errorf("token %d, was %d", again.Token(), k.Token())
		}
		if same, err := b.Detach(t.Context(), again); err != nil || same != handle {
			t.Fatalf("the handle has changed: %v, err %v", same != handle, err)
		}
	}
	if err := other.Check(); err != nil || waits.isDone() {
		t.Errorf("the session's other lock: %v; the rival is done: %v", err, waits.isDone())
	}
	again, err := b.Attach(t.Context(), handle)
	if err != nil {
		t.Fatal(err)
	}
	release(t, again)
	release(t, waits.granted(t))
	if _, err := b.Attach(t.Context(), handle); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("attach after the release: %v, want ErrLost", err)
	}
}

func TestALockThatCannotBeDetachedIsFreed(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	admin := connect(t, c.Endpoints())
	a := sit(t, c, etcdlock.Config{TTL: 10 * time.Second, UnavailableAfter: time.Second})
	k := acquire(t, a, "x")
	a.cut()
	if _, err := a.Detach(t.Context(), k); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("detach while etcd is away: %v, want ErrUnavailable", err)
	}
	a.heal()
	until(t, "its key is gone", func() bool { return keys(t, admin, "x") == 0 })
}

func TestALockWhoseKeyIsGoneIsLostToAttach(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	admin := connect(t, c.Endpoints())
	a := sit(t, c, etcdlock.Config{TTL: 10 * time.Second})
	handle, err := a.Detach(t.Context(), acquire(t, a, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Delete(t.Context(), root("x"), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Attach(t.Context(), handle); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("attach: %v, want ErrLost", err)
	}
	for _, wrong := range []lockstep.Handle{"", "no handle", "e30"} {
		if _, err := a.Attach(t.Context(), wrong); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("attach of %q: %v, want ErrInvalid", wrong, err)
		}
	}
}
