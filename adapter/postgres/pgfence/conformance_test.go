package pgfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fencetest"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
)

// The statements of a guarded value.
const (
	put = "INSERT INTO items (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
	del = "DELETE FROM items WHERE name = $1"
	get = "SELECT value FROM items WHERE name = $1"
)

// rows is a value in the table items, guarded in pgx transactions.
type rows struct {
	guard *pgfence.Guard
	pool  *pgxpool.Pool
	name  string
}

func (r *rows) in(ctx context.Context, work func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, r.pool, work)
}

func (r *rows) Enter(ctx context.Context, g fence.Grant) error {
	return r.in(ctx, func(tx pgx.Tx) error { return r.guard.Enter(ctx, pgfence.Pgx(tx), r.name, g) })
}

func (r *rows) Write(ctx context.Context, g fence.Grant, value []byte) error {
	return r.in(ctx, func(tx pgx.Tx) error { return r.write(ctx, tx, g, value) })
}

func (r *rows) write(ctx context.Context, tx pgx.Tx, g fence.Grant, value []byte) error {
	if err := r.guard.Write(ctx, pgfence.Pgx(tx), r.name, g); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, put, r.name, value)
	return err
}

func (r *rows) WriteOnce(ctx context.Context, g fence.Grant, value []byte) error {
	return r.in(ctx, func(tx pgx.Tx) error {
		if err := r.guard.Once(ctx, pgfence.Pgx(tx), r.name, g); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, put, r.name, value)
		return err
	})
}

func (r *rows) Delete(ctx context.Context, g fence.Grant) error {
	return r.in(ctx, func(tx pgx.Tx) error {
		if err := r.guard.Write(ctx, pgfence.Pgx(tx), r.name, g); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, del, r.name)
		return err
	})
}

func (r *rows) Read(ctx context.Context) ([]byte, error) {
	return value(r.pool.QueryRow(ctx, get, r.name))
}

// value reads a row that may not exist.
func value(row interface{ Scan(...any) error }) (v []byte, err error) {
	err = row.Scan(&v)
	if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, sql.ErrNoRows) {
		err = fs.ErrNotExist
	}
	return v, err
}

// crashes let the client die in its transaction: its connection ends without a COMMIT.
func crashes() []fencetest.Crash {
	return []fencetest.Crash{
		{Moment: "mark raised, data not written", Write: func(t *testing.T, s fencetest.Store, g fence.Grant, _ []byte) {
			r := s.(*rows)
			die(t, r, func(tx pgx.Tx) error { return r.guard.Write(t.Context(), pgfence.Pgx(tx), r.name, g) })
		}},
		{Moment: "data written, not committed", Write: func(t *testing.T, s fencetest.Store, g fence.Grant, value []byte) {
			r := s.(*rows)
			die(t, r, func(tx pgx.Tx) error { return r.write(t.Context(), tx, g, value) })
		}},
	}
}

func die(t *testing.T, r *rows, work func(pgx.Tx) error) {
	t.Helper()
	tx, err := r.pool.Begin(t.Context())
	if err == nil {
		err = work(tx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Conn().PgConn().Conn().Close(); err != nil { // the socket, without notifying the server
		t.Fatal(err)
	}
	tx.Rollback(t.Context()) // returns the dead connection to the pool
}

func restart(t *testing.T, s *pgserver.Server) {
	s.Kill()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
}

func TestConformanceWithPgx(t *testing.T) {
	s, _ := sharedServers(t)
	guard := newGuard(t, pgfence.Config{})
	fencetest.Run(t, fencetest.Guard{
		Open: func(t *testing.T, resource string) fencetest.Store {
			return &rows{guard, openPool(t, s.URL()), resource}
		},
		Crashes: crashes(),
		Restart: func(t *testing.T) { restart(t, s) },
		Rounds:  10,
	})
}

// standard is a value in the table items, guarded in database/sql transactions.
type standard struct {
	guard *pgfence.Guard
	db    *sql.DB
	name  string
}

type takeStep = func(context.Context, pgfence.Tx, string, fence.Grant) error

func (s *standard) step(ctx context.Context, g fence.Grant, step takeStep, statement string, args ...any) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := step(ctx, pgfence.SQL(tx), s.name, g); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *standard) Enter(ctx context.Context, g fence.Grant) error {
	return s.step(ctx, g, s.guard.Enter, "SELECT 1")
}

func (s *standard) Write(ctx context.Context, g fence.Grant, value []byte) error {
	return s.step(ctx, g, s.guard.Write, put, s.name, value)
}

func (s *standard) WriteOnce(ctx context.Context, g fence.Grant, value []byte) error {
	return s.step(ctx, g, s.guard.Once, put, s.name, value)
}

func (s *standard) Delete(ctx context.Context, g fence.Grant) error {
	return s.step(ctx, g, s.guard.Write, del, s.name)
}

func (s *standard) Read(ctx context.Context) ([]byte, error) {
	return value(s.db.QueryRowContext(ctx, get, s.name))
}

func TestConformanceWithDatabaseSQLBehindAPooler(t *testing.T) {
	_, b := sharedServers(t)
	guard := newGuard(t, pgfence.Config{})
	fencetest.Run(t, fencetest.Guard{
		Open: func(t *testing.T, resource string) fencetest.Store {
			return &standard{guard, openSQL(t, b.URL()), resource}
		},
		Rounds: 10,
	})
}

// foreignWriter knows nothing of this package: it declares its token and writes to a protected
// table.
type foreignWriter struct {
	pool  *pgxpool.Pool
	table string
}

func (w *foreignWriter) say(ctx context.Context, g fence.Grant, statement string, args ...any) error {
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT set_config('lockstep.backend', $1, true), set_config('lockstep.lock', $2, true), set_config('lockstep.token', $3, true)`,
			g.Backend, g.Lock, fmt.Sprint(uint64(g.Token)))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, fmt.Sprintf(statement, w.table), args...)
		return err
	})
	return pgfence.Verdict(err, g)
}

func (w *foreignWriter) Enter(ctx context.Context, g fence.Grant) error {
	return w.say(ctx, g, "UPDATE %s SET id = id WHERE false")
}

func (w *foreignWriter) Write(ctx context.Context, g fence.Grant, value []byte) error {
	return w.say(ctx, g, "INSERT INTO %s VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET value = excluded.value", value)
}

func (w *foreignWriter) Delete(ctx context.Context, g fence.Grant) error {
	return w.say(ctx, g, "TRUNCATE %s")
}

func (w *foreignWriter) Read(ctx context.Context) ([]byte, error) {
	return value(w.pool.QueryRow(ctx, fmt.Sprintf("SELECT value FROM %s WHERE id = 1", w.table)))
}

func TestConformanceOfTheTrigger(t *testing.T) {
	s, _ := sharedServers(t)
	fencetest.Run(t, fencetest.Guard{
		Open: func(t *testing.T, resource string) fencetest.Store {
			h := fnv.New64a()
			h.Write([]byte(resource))
			w := &foreignWriter{openPool(t, s.URL()+"&default_query_exec_mode=exec"), fmt.Sprintf("protected_%x", h.Sum64())}
			execute(t, w.pool, fmt.Sprintf("SELECT pg_advisory_xact_lock(1); CREATE TABLE IF NOT EXISTS %s (id int PRIMARY KEY, value bytea)", w.table), pgx.QueryExecModeSimpleProtocol)
			must(t, pgfence.Protect(within(t), w.pool, "", w.table, resource))
			return w
		},
		Restart: func(t *testing.T) { restart(t, s) },
		Rounds:  10,
		Writers: 4,
	})
}

// elsewhere is a value that is not in the database.
type elsewhere struct {
	marks *pgfence.Marks
	name  string
	at    *place
}

type place struct {
	sync.Mutex
	values map[string][]byte
}

func (e *elsewhere) step(ctx context.Context, g fence.Grant, s fence.Step, change func()) error {
	e.at.Lock()
	defer e.at.Unlock()
	err := e.marks.Admit(ctx, e.name, g, s)
	if err == nil {
		change()
	}
	return err
}

func (e *elsewhere) Enter(ctx context.Context, g fence.Grant) error {
	return e.step(ctx, g, fence.Enter, func() {})
}

func (e *elsewhere) Write(ctx context.Context, g fence.Grant, value []byte) error {
	return e.step(ctx, g, fence.Write, func() { e.at.values[e.name] = value })
}

func (e *elsewhere) WriteOnce(ctx context.Context, g fence.Grant, value []byte) error {
	return e.step(ctx, g, fence.WriteOnce, func() { e.at.values[e.name] = value })
}

func (e *elsewhere) Delete(ctx context.Context, g fence.Grant) error {
	return e.step(ctx, g, fence.Write, func() { delete(e.at.values, e.name) })
}

func (e *elsewhere) Read(context.Context) ([]byte, error) {
	e.at.Lock()
	defer e.at.Unlock()
	value, known := e.at.values[e.name]
	if !known {
		return nil, fs.ErrNotExist
	}
	return value, nil
}

func TestConformanceOfMarks(t *testing.T) {
	_, b := sharedServers(t)
	pool := openPool(t, b.URL())
	marks := newGuard(t, pgfence.Config{}).Marks(pool)
	at := &place{values: map[string][]byte{}}
	fencetest.Run(t, fencetest.Guard{
		Open:   func(t *testing.T, resource string) fencetest.Store { return &elsewhere{marks, resource, at} },
		Rounds: 10,
	})
}
