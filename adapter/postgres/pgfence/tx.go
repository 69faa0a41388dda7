package pgfence

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
)

// A Tx is the caller's open transaction. [Pgx] and [SQL] create one; a new one may be created for
// each call.
type Tx interface {
	queryRow(ctx context.Context, sql string, args ...any) row
}

// A row is a result of at most one row; isNoRow reports that there was none.
type row interface{ Scan(into ...any) error }

// Pgx makes a Tx from a pgx transaction. The guard's statements are never prepared, so any pgx mode
// and any pooler will do.
func Pgx(tx pgx.Tx) Tx { return pgxRunner{tx} }

// SQL makes a Tx from a database/sql transaction. The driver must support the parameters $1, $2 and
// so on, as pgx/v5/stdlib and lib/pq do. Whether statements are prepared is up to the driver: with
// pgx and an old pooler, set default_query_exec_mode=exec in the URL.
func SQL(tx *sql.Tx) Tx { return sqlRunner{tx} }

// pgxRunner runs statements on a pgx transaction or pool.
type pgxRunner struct {
	db interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}
}

func (r pgxRunner) queryRow(ctx context.Context, sql string, args ...any) row {
	return r.db.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

type sqlRunner struct{ tx *sql.Tx }

func (r sqlRunner) queryRow(ctx context.Context, sql string, args ...any) row {
	return r.tx.QueryRowContext(ctx, sql, args...)
}

// isNoRow reports whether a statement returned no row.
func isNoRow(err error) bool {
	return errors.Is(err, pgx.ErrNoRows) || errors.Is(err, sql.ErrNoRows)
}
