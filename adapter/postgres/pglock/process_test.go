package pglock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
)

// holderURL is set in a child process that holds a lock until it is killed.
const holderURL = "LOCKSTEP_TEST_HOLDER_URL"

// holdForEver is the child's program.
func holdForEver(url string) error {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	l, err := pglock.New(pool, pglock.Config{TTL: ttl})
	if err != nil {
		return err
	}
	lock, err := l.Acquire(context.Background(), "x")
	if err != nil {
		return err
	}
	fmt.Println("holding", lock.Token())
	<-lock.Context().Done()
	return context.Cause(lock.Context())
}

// startHolder starts a process that holds the lock x.
func startHolder(t *testing.T, url string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderURL+"="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "holding ") {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return kill
}

func TestAHolderThatIsKilledFreesTheLockWithinItsTTL(t *testing.T) {
	s, b := sharedServers(t)
	for name, address := range map[string]string{"direct": s.URL(), "behind a pooler": b.URL()} {
		t.Run(name, func(t *testing.T) {
			l := dial(t, s.Address(), pglock.Config{})
			kill := startHolder(t, address)
			time.Sleep(ttl / 2) // it has renewed
			busy(t, l, "x")
			kill()
			begin := time.Now()
			lock := hold(t, l, "x")
			if took := time.Since(begin); took > ttl+l.Capabilities().Grace+3*time.Second {
				t.Errorf("free after %v, the TTL is %v", took, ttl)
			}
			release(t, lock)
		})
	}
}

// A pooler in transaction mode gives each statement another session. 1,000 locks are taken and
// released through it, and in between a process waiting for one of them and a process holding
// another are killed.
func TestNoLockIsStrandedBehindAPooler(t *testing.T) {
	s, b := sharedServers(t)
	l := dial(t, b.Address(), pglock.Config{})
	kill := startHolder(t, b.URL())
	const workers, rounds = 10, 100
	var done atomic.Int64
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			var last uint64
			for range rounds {
				lock := hold(t, l, fmt.Sprintf("pooled/%d", worker))
				if token := uint64(lock.Token()); token <= last {
					t.Errorf("token %d after %d", token, last)
				} else {
					last = token
				}
				release(t, lock)
				if done.Add(1) == workers*rounds/2 {
					kill()
				}
			}
		})
	}
	group.Wait()
	admin := openPool(t, s.Address())
	if n := query[int](t, admin, "SELECT count(*)::int FROM lockstep_locks WHERE name LIKE 'pooled/%' AND owner IS NULL"); n != workers {
		t.Errorf("%d of %d locks are free", n, workers)
	}
	if n := query[int](t, admin, "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
	release(t, hold(t, l, "x")) // the killed process's
}
