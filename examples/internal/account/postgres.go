package account

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
)

func startPostgres(ctx context.Context, _ string) (*Store, error) {
	server, err := pgserver.Start(pgserver.Config{})
	if err != nil {
		return nil, err
	}
	s := &Store{URL: server.URL(), Close: func() { server.Close() }} // also deletes the data
	if err := makeTables(ctx, s.URL); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func makeTables(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE TABLE accounts (name text PRIMARY KEY, balance integer NOT NULL)"); err != nil {
		return err
	}
	return pgfence.Migrate(ctx, pool, "")
}

func openPostgres(ctx context.Context, url, name string) (Pair, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return Pair{}, err
	}
	guard, err := pgfence.New(pgfence.Config{})
	plain := plainRow{pool: pool, name: name + "-plain"}
	return Pair{plain, guardedRow{plainRow{pool: pool, name: name + "-guarded"}, guard}}, err
}

type plainRow struct {
	unguarded
	pool *pgxpool.Pool
	name string
}

func (r plainRow) Read(ctx context.Context) (int, error) {
	balance := Opening
	err := r.pool.QueryRow(ctx, "SELECT balance FROM accounts WHERE name = $1", r.name).Scan(&balance)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return balance, err
}

func (r plainRow) Write(ctx context.Context, _ fence.Grant, balance int) error {
	return r.set(ctx, r.pool, balance)
}

func (r plainRow) set(ctx context.Context, db interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, balance int,
) error {
	_, err := db.Exec(ctx, "INSERT INTO accounts VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET balance = $2", r.name, balance)
	return err
}

type guardedRow struct {
	plainRow
	guard *pgfence.Guard
}

func (r guardedRow) Enter(ctx context.Context, g fence.Grant) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error { return r.guard.Enter(ctx, pgfence.Pgx(tx), r.name, g) })
}

func (r guardedRow) Write(ctx context.Context, g fence.Grant, balance int) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if err := r.guard.Write(ctx, pgfence.Pgx(tx), r.name, g); err != nil {
			return err
		}
		return r.set(ctx, tx, balance)
	})
}
