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

// PostgresPool makes a pool of connections to the server at the URL, which the caller closes. It connects when it is used. Of the
// options it takes Dial.
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

// poolConfig reads the whole URL as psql does. The error of the library may show a password, so it is not passed on.
func (u URL) poolConfig() (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(u.text)
	if err != nil {
		return nil, fmt.Errorf("want a URL as psql takes it, such as postgres://user@127.0.0.1:5432/app")
	}
	return cfg, nil
}

// PostgresSchema is what makes the table that the Postgres backend needs.
func PostgresSchema() (string, error) { return pglock.Schema("") }
