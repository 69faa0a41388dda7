package backend

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
)

var postgres = kind{
	scheme:  "postgres",
	also:    []string{"postgresql"},
	example: "postgres://127.0.0.1:5432/app",
	check: func(u URL) error {
		_, err := u.poolConfig()
		return err
	},
	open: func(u URL, o Options) (lockstep.Locker, error) {
		pool, err := u.PostgresPool(o)
		if err != nil {
			return nil, err
		}
		l, err := pglock.New(pool, pglock.Config{TTL: o.TTL, UnavailableAfter: o.Connect, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		return l, nil
	},
}

// PostgresPool returns a connection pool for the server at the URL. It connects on first use, and
// the caller closes it. It uses the option Dial.
func (u URL) PostgresPool(o Options) (*pgxpool.Pool, error) {
	cfg, err := u.poolConfig()
	if err != nil {
		return nil, err
	}
	if dial := o.dial(); dial != nil {
		cfg.ConnConfig.DialFunc = dial
	}
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

// poolConfig parses the whole URL as psql does. The library's error may contain a password, so it
// is not returned.
func (u URL) poolConfig() (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(u.text)
	if err != nil {
		return nil, fmt.Errorf("must be a URL as psql accepts it, such as postgres://user@127.0.0.1:5432/app")
	}
	return cfg, nil
}

// PostgresSchema returns the SQL that creates the table of the Postgres backend.
func PostgresSchema() (string, error) { return pglock.Schema("") }
