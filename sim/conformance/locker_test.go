package conformance

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/locktest"
)

func TestALockIsTakenShownAndGivenBack(t *testing.T) {
	c := startCluster(t, 3)
	k, _ := c.client(t, 5*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range 3 {
		start := time.Now()
		l, err := k.Acquire(ctx, "jobs/one")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: token %d after %v", i, l.Token(), time.Since(start))
		state, err := k.Inspect(ctx, "jobs/one")
		if err != nil || len(state.Holders) != 1 {
			t.Fatalf("state %+v, err %v", state, err)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheNativeLockerKeepsTheContract(t *testing.T) {
	c := startCluster(t, 3)
	admin := c.admin(t)
	var mu sync.Mutex
	networks := make(map[lockstep.Locker]*network)
	find := func(l lockstep.Locker) *network {
		mu.Lock()
		defer mu.Unlock()
		return networks[l]
	}
	locktest.Run(t, locktest.Backend{
		New: func(t *testing.T) lockstep.Locker {
			k, n := c.client(t, suiteTTL)
			mu.Lock()
			defer mu.Unlock()
			networks[k] = n
			return k
		},
		Server: locktest.Server{
			Cut:     func(_ *testing.T, l lockstep.Locker) { find(l).setCut(true) },
			Heal:    func(_ *testing.T, l lockstep.Locker) { find(l).setCut(false) },
			Restart: func(*testing.T) { c.restart() },
			Revoke: func(t *testing.T, name, by string) {
				if n, err := admin.RevokeLock(t.Context(), name, client.Revocation{By: by, Reason: "test"}); err != nil || n != 1 {
					t.Fatalf("revoked %d, err %v", n, err)
				}
			},
		},
	})
}

// suiteTTL is long enough to survive an election on a machine that is busy with other tests.
const suiteTTL = 5 * time.Second

// TestMain lets more tests run in parallel than there are processors: most of them wait for leases.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
