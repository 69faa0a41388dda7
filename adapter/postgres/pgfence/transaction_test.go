package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
)

// A holder that freezes in the middle of its transaction keeps the next one out only until the
// server ends its session.
func TestAFrozenHolderIsPutOut(t *testing.T) {
	s, b := sharedServers(t)
	for address, url := range map[string]string{"directly": s.URL(), "behind a pooler": b.URL()} {
		t.Run(address, func(t *testing.T) {
			ctx, name := within(t), fresh(t)
			guard := newGuard(t, pgfence.Config{MaxIdle: time.Second})
			frozen := begin(t, openPool(t, url+"&default_query_exec_mode=exec"), pgx.TxOptions{})
			must(t, guard.Write(ctx, pgfence.Pgx(frozen), name, grant(7)))
			other := openPool(t, url+"&default_query_exec_mode=exec")
			must(t, pgx.BeginFunc(ctx, other, func(tx pgx.Tx) error {
				return guard.Enter(ctx, pgfence.Pgx(tx), name, grant(8))
			}))
			if _, err := frozen.Exec(ctx, put, name, []byte("late")); err == nil {
				t.Error("the frozen holder wrote")
			}
			if err := frozen.Commit(ctx); err == nil {
				t.Error("the frozen holder committed")
			}
		})
	}
}

func setting(t *testing.T, tx pgx.Tx, name string) (value string) {
	t.Helper()
	must(t, tx.QueryRow(within(t), "SELECT coalesce(current_setting($1, true), '')", pgx.QueryExecModeExec, name).Scan(&value))
	return value
}

// The settings of a step do not outlive its transaction, after which a pooler may run someone
// else's.
func TestSettingsEndWithTheTransaction(t *testing.T) {
	_, b := sharedServers(t)
	pool := openPool(t, b.URL())
	guard := newGuard(t, pgfence.Config{MaxIdle: 90 * time.Second})
	for range 3 { // each may get the previous one's connection
		tx := begin(t, pool, pgx.TxOptions{})
		for name, want := range map[string]string{"lockstep.token": "", "idle_in_transaction_session_timeout": "0"} {
			if got := setting(t, tx, name); got != want {
				t.Errorf("%s is %q at the start of a transaction, want %q", name, got, want)
			}
		}
		must(t, guard.Write(within(t), pgfence.Pgx(tx), fresh(t), grant(7)))
		for name, want := range map[string]string{"lockstep.token": "7", "idle_in_transaction_session_timeout": "90s"} {
			if got := setting(t, tx, name); got != want {
				t.Errorf("%s is %q after a step, want %q", name, got, want)
			}
		}
		must(t, tx.Commit(within(t)))
	}
}

func TestALowerIdleTimeoutAndAHigherDurabilityStay(t *testing.T) {
	s, _ := sharedServers(t)
	pool := openPool(t, s.URL())
	for _, c := range []struct{ idle, commit, wantIdle, wantCommit string }{
		{"500ms", "off", "500ms", "on"},
		{"2min", "local", "1min", "on"},
		{"0", "remote_apply", "1min", "remote_apply"},
	} {
		tx := begin(t, pool, pgx.TxOptions{})
		execute(t, tx, fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = '%s'; SET LOCAL synchronous_commit = %s", c.idle, c.commit), pgx.QueryExecModeSimpleProtocol)
		must(t, newGuard(t, pgfence.Config{}).Enter(within(t), pgfence.Pgx(tx), fresh(t), grant(7)))
		idle, commit := setting(t, tx, "idle_in_transaction_session_timeout"), setting(t, tx, "synchronous_commit")
		if idle != c.wantIdle || commit != c.wantCommit {
			t.Errorf("of %s and %s became %s and %s, want %s and %s", c.idle, c.commit, idle, commit, c.wantIdle, c.wantCommit)
		}
		tx.Rollback(within(t))
	}
}

// A rollback, even to a savepoint, undoes the raised mark.
func TestARollbackTakesTheStepBack(t *testing.T) {
	s, _ := sharedServers(t)
	pool, ctx, name := openPool(t, s.URL()), within(t), fresh(t)
	guard := newGuard(t, pgfence.Config{})
	tx := begin(t, pool, pgx.TxOptions{})
	must(t, guard.Write(ctx, pgfence.Pgx(tx), name, grant(7)))
	inner, err := tx.Begin(ctx)
	must(t, err)
	must(t, guard.Write(ctx, pgfence.Pgx(inner), name, grant(9)))
	must(t, inner.Rollback(ctx))
	must(t, guard.Write(ctx, pgfence.Pgx(tx), name, grant(8)))
	must(t, tx.Rollback(ctx))
	m, err := guard.Marks(pool).Mark(ctx, name)
	if err != nil || m != (fence.Mark{}) {
		t.Errorf("the mark is %+v, %v, want none", m, err)
	}
}

func TestAStepWaitsAsLongAsTheTransactionAllows(t *testing.T) {
	s, _ := sharedServers(t)
	pool, ctx, name := openPool(t, s.URL()), within(t), fresh(t)
	guard := newGuard(t, pgfence.Config{})
	must(t, guard.Marks(pool).Admit(ctx, name, grant(6), fence.Write))
	first := begin(t, pool, pgx.TxOptions{})
	must(t, guard.Write(ctx, pgfence.Pgx(first), name, grant(7)))
	second := begin(t, pool, pgx.TxOptions{})
	execute(t, second, "SET LOCAL lock_timeout = '50ms'")
	if err := guard.Enter(ctx, pgfence.Pgx(second), name, grant(8)); !errors.Is(err, fence.ErrBusy) {
		t.Errorf("a step beside another: %v, want ErrBusy", err)
	}
	third := begin(t, pool, pgx.TxOptions{})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := guard.Enter(short, pgfence.Pgx(third), name, grant(8)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a step with little time: %v, want DeadlineExceeded", err)
	}
}

// A transaction with a snapshot from before another's step cannot write after it.
func TestAnOldSnapshotIsRefused(t *testing.T) {
	s, _ := sharedServers(t)
	pool, ctx := openPool(t, s.URL()), within(t)
	guard := newGuard(t, pgfence.Config{})
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, known := range []bool{false, true} { // whether the resource has a mark
			name := fresh(t)
			if known {
				must(t, guard.Marks(pool).Admit(ctx, name, grant(6), fence.Write))
			}
			old := begin(t, pool, pgx.TxOptions{IsoLevel: level})
			execute(t, old, "SELECT FROM items") // the snapshot
			must(t, guard.Marks(pool).Admit(ctx, name, grant(7), fence.Enter))
			err := guard.Write(ctx, pgfence.Pgx(old), name, grant(7))
			refusal, ok := errors.AsType[*pgconn.PgError](err)
			if !ok || refusal.Code != "40001" {
				t.Errorf("%s: %v, want SQLSTATE 40001", level, err)
			}
			old.Rollback(ctx)
		}
	}
}

func TestAMissingTableSaysWhatToDo(t *testing.T) {
	s, _ := sharedServers(t)
	m := newGuard(t, pgfence.Config{Table: "nowhere.to_be_found"}).Marks(openPool(t, s.URL()))
	err := m.Admit(within(t), "x", grant(1), fence.Write)
	if !errors.Is(err, pgfence.ErrTable) || !errors.Is(err, lockstep.ErrUnsupported) {
		t.Errorf("a step without a table: %v, want ErrTable and ErrUnsupported", err)
	}
}

func TestATableMayBeElsewhere(t *testing.T) {
	s, _ := sharedServers(t)
	pool, ctx := openPool(t, s.URL()), within(t)
	execute(t, pool, "CREATE SCHEMA ops")
	must(t, pgfence.Migrate(ctx, pool, "ops.Marks"))
	guard := newGuard(t, pgfence.Config{Table: "ops.Marks"})
	must(t, guard.Marks(pool).Admit(ctx, "x", grant(7), fence.Write))
	execute(t, pool, "CREATE TABLE ops.data (id int)")
	must(t, pgfence.Protect(ctx, pool, "ops.Marks", "ops.data", "x"))
	_, err := pool.Exec(ctx, "INSERT INTO ops.data VALUES (1)")
	if err := pgfence.Verdict(err, fence.Grant{}); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("a write without a token: %v, want ErrNoToken", err)
	}
}

// An admitted step survives a server crash, although the database by default would not wait for the
// disk.
func TestMarksSurviveACrash(t *testing.T) {
	s, err := pgserver.Start(pgserver.Config{Settings: map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s"}})
	must(t, err)
	defer s.Close()
	must(t, migrate(s.URL()))
	m := newGuard(t, pgfence.Config{}).Marks(openPool(t, s.URL()))
	ctx := within(t)
	for token := range lockstep.Token(20) {
		must(t, m.Admit(ctx, "x", grant(token+1), fence.Enter))
	}
	restart(t, s)
	m = newGuard(t, pgfence.Config{}).Marks(openPool(t, s.URL()))
	if mark, err := m.Mark(ctx, "x"); err != nil || mark.Token != 20 {
		t.Errorf("after a crash the mark is %+v, %v, want token 20", mark, err)
	}
}
