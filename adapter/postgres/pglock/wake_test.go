package pglock_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
)

// idOf extracts the secret of a claim in a handle.
func idOf(t *testing.T, h lockstep.Handle) string {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(string(h))
	var ticket struct{ ID string }
	if err == nil {
		err = json.Unmarshal(text, &ticket)
	}
	if err != nil || len(ticket.ID) != 32 {
		t.Fatalf("handle %s: %v", text, err)
	}
	return ticket.ID
}

// listening returns how many sessions are listening.
func listening(t *testing.T, admin *pgxpool.Pool) int {
	t.Helper()
	return query[int](t, admin, "SELECT count(*)::int FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
}

// rarely configures a Locker whose waiters poll so rarely that a fast one must have been woken.
func rarely(wake pglock.Wake) pglock.Config {
	return pglock.Config{Wake: wake, TTL: lockstep.MaxTTL, PollEvery: 10 * time.Second}
}

// fillBackoff is how long until a waiter's waits are long: its first waits are short, whatever the
// configuration.
const fillBackoff = 4 * time.Second

// handOver measures the time from a release to the grant of a waiter that has waited for a while.
func handOver(t *testing.T, from, to lockstep.Locker, name string) time.Duration {
	t.Helper()
	lock := hold(t, from, name)
	granted := make(chan time.Time, 1)
	go func() {
		k, err := to.Acquire(context.Background(), name)
		if err != nil {
			t.Error(err)
			return
		}
		granted <- time.Now()
		k.Release(context.Background())
	}()
	time.Sleep(fillBackoff)
	begin := time.Now()
	release(t, lock)
	select {
	case at := <-granted:
		return at.Sub(begin)
	case <-time.After(20 * time.Second):
		t.Fatal("the waiter got nothing")
		return 0
	}
}

// fast bounds a hand-over that did not wait for a poll: with these waits a poll is due 3 s after
// the release on average.
const fast = time.Second

func TestAWaiterIsWokenByTheRelease(t *testing.T) {
	s, b := sharedServers(t)
	admin := openPool(t, s.Address())
	direct, another := dial(t, s.Address(), rarely(pglock.WakeAuto)), dial(t, s.Address(), rarely(pglock.WakeAuto))
	pooled := dial(t, b.Address(), rarely(pglock.WakeAuto))
	if took := handOver(t, direct, another, "direct"); took > fast {
		t.Errorf("a release to another process took %v", took)
	}
	if n := listening(t, admin); n != 1 {
		t.Errorf("%d sessions listen while one Locker has waited", n)
	}
	terminate(t, admin) // the session that listens too
	time.Sleep(time.Second)
	t.Run("together", func(t *testing.T) {
		for name, pair := range map[string][2]lockstep.Locker{
			"after the end of the session": {direct, another},
			"released through a pooler":    {pooled, another},
			"of the same process":          {pooled, pooled},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if took := handOver(t, pair[0], pair[1], name); took > fast {
					t.Errorf("it took %v", took)
				}
			})
		}
	})
	if err := another.Close(t.Context()); err != nil {
		t.Error(err)
	}
	until(t, 5*time.Second, "nobody listens when the Lockers are closed, or where there is a pooler", func() bool { return listening(t, admin) == 0 })
}

func TestAWaiterBehindAPoolerGetsTheLockByPolling(t *testing.T) {
	s, b := sharedServers(t)
	admin := openPool(t, s.Address())
	for _, wake := range []pglock.Wake{pglock.WakeAuto, pglock.WakeByPolling} {
		from := dial(t, b.Address(), pglock.Config{Wake: wake})
		to := dial(t, b.Address(), pglock.Config{Wake: wake})
		lock := hold(t, from, "polled")
		time.AfterFunc(time.Second, func() { release(t, lock) })
		after := hold(t, to, "polled")
		if n := listening(t, admin); n != 0 {
			t.Errorf("wake %d: %d sessions listen behind a pooler", wake, n)
		}
		release(t, after)
	}
}

// Many waiters for a lock ask the server no more often than a few, and each gets it in the end.
func TestManyWaitersOfOneLockerAskLikeOne(t *testing.T) {
	s, _ := sharedServers(t)
	admin, l := openPool(t, s.Address()), dial(t, s.Address(), pglock.Config{TTL: 30 * time.Second})
	lock := hold(t, dial(t, s.Address(), pglock.Config{TTL: 30 * time.Second}), "crowd")
	var group sync.WaitGroup
	const crowd = 100
	for range crowd {
		group.Go(func() { release(t, hold(t, l, "crowd")) })
	}
	time.Sleep(2 * time.Second) // the first waits are short
	count := func() int64 {
		return query[int64](t, admin, "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'")
	}
	before := count()
	time.Sleep(3 * time.Second)
	// Each of them would have asked every 500 ms: 600 times. Renewals are few.
	if asked := count() - before; asked > crowd*3 {
		t.Errorf("%d transactions in 3 s of %d waiters", asked, crowd)
	} else {
		t.Log(fmt.Sprint(asked, " transactions in 3 s"))
	}
	release(t, lock)
	group.Wait()
}

// The smallest possible pool: the listening connection does not count, and no statement needs two.
func TestOneConnectionIsEnough(t *testing.T) {
	s, _ := sharedServers(t)
	pool, err := pgxpool.New(t.Context(), s.URL()+"&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l, err := pglock.New(pool, pglock.Config{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(context.Background())
	lock := hold(t, l, "one")
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() { release(t, hold(t, l, "one")) })
	}
	time.Sleep(3 * ttl / 2)
	if err := lock.Check(); err != nil {
		t.Errorf("the lock is lost: %v", err)
	}
	release(t, lock)
	group.Wait()
}
