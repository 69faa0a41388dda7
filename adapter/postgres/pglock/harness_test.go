package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(holderURL); url != "" { // a child of process_test.go
		fmt.Fprintln(os.Stderr, holdForEver(url))
		os.Exit(1)
	}
	code := m.Run()
	code = max(code, shared.close())
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// servers are shared by all tests that need no special settings: creating a database cluster takes
// seconds.
type servers struct {
	once    sync.Once
	server  *pgserver.Server
	bouncer *pgserver.Bouncer
	err     error
}

var shared servers

// sharedServers starts a PostgreSQL with the table, and a pgbouncer in front of it, when first
// needed. A test that stops them must restart them.
func sharedServers(t testing.TB) (*pgserver.Server, *pgserver.Bouncer) {
	t.Helper()
	shared.once.Do(shared.start)
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server, shared.bouncer
}

func (s *servers) start() {
	if s.server, s.err = pgserver.Start(pgserver.Config{}); s.err != nil {
		return
	}
	if s.bouncer, s.err = pgserver.StartBouncer(s.server); s.err != nil {
		return
	}
	s.err = migrate(s.server)
}

// close returns the exit code.
func (s *servers) close() int {
	if s.bouncer != nil {
		s.bouncer.Close()
	}
	if s.server == nil {
		return 0
	}
	if err := s.server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func migrate(s *pgserver.Server) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, s.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	return pglock.Migrate(ctx, pool, "")
}

// ttl is the TTL of the tests: even a busy machine renews it in time.
const ttl = 3 * time.Second

// startServer starts a PostgreSQL with the table, just for this test.
func startServer(t testing.TB, settings map[string]string) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start(pgserver.Config{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := migrate(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func newPool(t testing.TB, address string) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(pgserver.URL(address) + "&connect_timeout=3&pool_max_conns=4")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// openPool opens a pool for the length of the test.
func openPool(t testing.TB, address string) *pgxpool.Pool {
	t.Helper()
	pool := newPool(t, address)
	t.Cleanup(pool.Close)
	return pool
}

// A client is a Locker with its own pool and network.
type client struct {
	*pglock.Locker
	pool  *pgxpool.Pool
	proxy *testbed.Proxy
	once  sync.Once
}

func dial(t testing.TB, address string, c pglock.Config) *client {
	t.Helper()
	proxy, err := testbed.NewProxy(address)
	if err != nil {
		t.Fatal(err)
	}
	pool := newPool(t, proxy.Address())
	if c.TTL == 0 {
		c.TTL = ttl
	}
	l, err := pglock.New(pool, c)
	if err != nil {
		t.Fatal(err)
	}
	k := &client{Locker: l, pool: pool, proxy: proxy}
	query[int](t, pool, "SELECT 1") // a first connection can take long on a busy machine
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		k.Close(ctx)
	})
	return k
}

// Close also closes what New made.
func (k *client) Close(ctx context.Context) error {
	err := k.Locker.Close(ctx)
	k.once.Do(func() {
		k.pool.Close()
		k.proxy.Close()
	})
	return err
}

// hold takes a lock that should be free.
func hold(t testing.TB, l lockstep.Locker, name string) lockstep.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	lock, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func release(t testing.TB, lock lockstep.Lock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
}

// busy checks that the lock is not available.
func busy(t testing.TB, l lockstep.Locker, name string) {
	t.Helper()
	lock, err := lockstep.TryAcquire(context.Background(), l, name)
	if !errors.Is(err, lockstep.ErrBusy) {
		t.Errorf("try of a held lock: %v, want ErrBusy", err)
	}
	if err == nil {
		lock.Release(context.Background())
	}
}

// query runs a statement that returns one value.
func query[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (value T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := pool.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// until waits for something to hold.
func until(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
