package faulttest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/sim/faulttest"
)

func TestAMinorityGrantsNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	cluster := faulttest.Start(t, 5)
	holder := newClient(t, client.Config{Endpoints: cluster.Endpoints(), TTL: 2 * time.Minute})
	lock, err := holder.Acquire(t.Context(), "quorum/held", lockstep.WithWait(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		cluster.Kill(i)
	}
	other := newClient(t, client.Config{Endpoints: cluster.Endpoints(), UnavailableAfter: 3 * time.Second})
	if l, err := other.Acquire(t.Context(), "quorum/free"); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Fatalf("acquire with two of five nodes: %v, %v, want ErrUnavailable", l, err)
	}
	if err := lock.Check(); err != nil {
		t.Errorf("the lease of 2 min is over after some seconds: %v", err)
	}
	for i := range 3 {
		cluster.StartNode(i)
	}
	patient := newClient(t, client.Config{Endpoints: cluster.Endpoints(), UnavailableAfter: time.Minute})
	again, err := patient.Acquire(t.Context(), "quorum/free", lockstep.WithWait(time.Minute))
	if err != nil {
		t.Fatalf("acquire with all nodes back: %v", err)
	}
	if again.Token() <= lock.Token() {
		t.Errorf("token %d after %d", again.Token(), lock.Token())
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("release of the lock held all along: %v", err)
	}
}

func TestAllNodesKilledLoseNothing(t *testing.T) {
	cluster := faulttest.Start(t, 3)
	holder := newClient(t, client.Config{Endpoints: cluster.Endpoints(), TTL: 2 * time.Minute, UnavailableAfter: time.Minute})
	held := map[string]lockstep.Lock{}
	for _, name := range []string{"all/a", "all/b", "all/c"} {
		lock, err := holder.Acquire(t.Context(), name, lockstep.WithWait(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		held[name] = lock
	}
	cluster.KillAll()
	for i := range 3 {
		cluster.StartNode(i)
	}
	for name, lock := range held {
		state, err := holder.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Holders) != 1 || state.Holders[0].Token != lock.Token() {
			t.Errorf("%s: holders %+v, want the one with token %d", name, state.Holders, lock.Token())
		}
		if state.NextToken <= lock.Token() {
			t.Errorf("%s: next token %d, held %d", name, state.NextToken, lock.Token())
		}
	}
}
