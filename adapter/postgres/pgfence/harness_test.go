package pgfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
)

func TestMain(m *testing.M) {
	code := m.Run()
	code = max(code, shared.close())
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// servers are shared by all tests: creating a database cluster takes seconds.
type servers struct {
	once    sync.Once
	server  *pgserver.Server
	bouncer *pgserver.Bouncer
	err     error
}

var shared servers

// sharedServers starts a PostgreSQL with the tables, and a pgbouncer in front of it, when first
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
	s.err = migrate(s.server.URL())
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

// migrate creates the marks table and a table of values.
func migrate(url string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for range 2 { // it may be run twice
		if err := pgfence.Migrate(ctx, conn, ""); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "CREATE TABLE items (name text PRIMARY KEY, value bytea NOT NULL)")
	return err
}

func openPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url+"&pool_max_conns=4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func openSQL(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url+"&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	t.Cleanup(func() { db.Close() })
	return db
}

func newGuard(t testing.TB, c pgfence.Config) *pgfence.Guard {
	t.Helper()
	if c.MaxIdle == 0 {
		c.MaxIdle = time.Minute // a busy machine must not look like a frozen holder
	}
	g, err := pgfence.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// within bounds a hanging test.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// begin opens a transaction that is rolled back when the test ends.
func begin(t testing.TB, pool *pgxpool.Pool, options pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(within(t), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

func execute(t testing.TB, db pgfence.Executor, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(within(t), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func grant(token lockstep.Token) fence.Grant {
	return fence.Grant{Backend: "memory:test", Lock: "reports", Token: token}
}

var names atomic.Int64

// fresh returns a name, for a resource or a table, that no other test uses.
func fresh(t testing.TB) string {
	return fmt.Sprintf("%s_%d", strings.ToLower(t.Name()[:min(len(t.Name()), 30)]), names.Add(1))
}
