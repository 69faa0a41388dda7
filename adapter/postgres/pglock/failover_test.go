package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
)

// The machine of the primary is gone, and the synchronous standby takes over. By default the
// database does not wait for it, but the statements of the locks do.
func TestAFailoverToASynchronousStandbyLosesNoLock(t *testing.T) {
	primary := startServer(t, map[string]string{"synchronous_commit": "local"})
	standby, err := pgserver.StartStandby(primary)
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close()
	url := fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&connect_timeout=3&target_session_attrs=read-write", primary.Address(), standby.Address())
	holder, waiter := connectTo(t, url), connectTo(t, url)
	lock := hold(t, holder, "x")
	next := make(chan lockstep.Lock, 1)
	go func() {
		k, err := waiter.Acquire(context.Background(), "x")
		if err != nil {
			t.Error(err)
		}
		next <- k
	}()
	primary.Kill()
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	until(t, 10*time.Second, "the new primary shows the holder", func() bool {
		state, err := holder.Inspect(t.Context(), "x")
		return err == nil && len(state.Holders) == 1 && state.Holders[0].Token == lock.Token()
	})
	if err := lock.Check(); err != nil {
		t.Errorf("the lock is lost: %v", err)
	}
	release(t, lock)
	if after := <-next; after != nil {
		if after.Token() <= lock.Token() {
			t.Errorf("token %d after %d", after.Token(), lock.Token())
		}
		release(t, after)
	}
}

// connectTo opens a Locker on a URL with several servers. Its TTL is longer than a failover on a
// busy machine.
func connectTo(t *testing.T, url string) *pglock.Locker {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	l, err := pglock.New(pool, pglock.Config{TTL: time.Minute, UnavailableAfter: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close(context.Background())
		pool.Close()
	})
	return l
}

// A pool that leads to a server that accepts no writes, such as a standby.
func TestAServerThatTakesNoWritesIsUnavailable(t *testing.T) {
	s, _ := sharedServers(t)
	l := connectTo(t, s.URL()+"&default_transaction_read_only=on")
	if _, err := lockstep.TryAcquire(t.Context(), l, "x"); !errors.Is(err, lockstep.ErrUnavailable) || !lockstep.SafeToRetry(err) {
		t.Errorf("try: %v, want ErrUnavailable", err)
	}
}

func TestAServerThatIsNotThereIsUnavailable(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), pgserver.URL("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l, err := pglock.New(pool, pglock.Config{UnavailableAfter: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	begin := time.Now()
	if _, err := l.Acquire(t.Context(), "x"); !errors.Is(err, lockstep.ErrUnavailable) || !lockstep.SafeToRetry(err) {
		t.Errorf("acquire: %v, want ErrUnavailable", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A database whose default is the strictest isolation refuses conflicting statements. They are
// retried.
func TestLocksWorkWhateverTheDefaultIsolation(t *testing.T) {
	s, _ := sharedServers(t)
	l := connectTo(t, s.URL()+"&default_transaction_isolation=serializable")
	var group sync.WaitGroup
	var mu sync.Mutex
	inside, count := 0, 0
	const workers, rounds = 4, 5
	for worker := range workers {
		other := l
		if worker%2 == 1 {
			other = connectTo(t, s.URL()+"&default_transaction_isolation=repeatable%20read")
		}
		group.Go(func() {
			for range rounds {
				lock := hold(t, other, "isolated")
				mu.Lock()
				if inside++; inside != 1 {
					t.Error("two holders")
				}
				count++
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				inside--
				mu.Unlock()
				release(t, lock)
			}
		})
	}
	group.Wait()
	if count != workers*rounds {
		t.Errorf("%d of %d rounds", count, workers*rounds)
	}
}
