package guard

import (
	"context"
	"fmt"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdfence"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/adapter/redis/redisfence"
	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
	"github.com/lockstep-dev/lockstep/fence"
)

var postgres = kind{
	scheme:  "postgres",
	also:    []string{"postgresql"},
	example: "postgres://127.0.0.1:5432/app",
	parse:   parseServer,
	open: func(ctx context.Context, s Store) (fence.Resetter, func(), error) {
		g, err := pgfence.New(pgfence.Config{Table: s.marks})
		if err != nil {
			return nil, nil, err
		}
		pool, err := s.url.PostgresPool(backend.Options{})
		if err != nil {
			return nil, nil, err
		}
		// The guard returns errors of the connection unchanged. This one says for certain that
		// nothing was done.
		if err := pool.Ping(ctx); err != nil {
			pool.Close()
			return nil, nil, fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
		}
		return g.Marks(pool), pool.Close, nil
	},
}

var redis = kind{
	scheme:  "redis",
	also:    []string{"rediss"},
	example: "redis://127.0.0.1:6379/0",
	parse:   parseServer,
	open: func(_ context.Context, s Store) (fence.Resetter, func(), error) {
		rdb, err := s.url.RedisClient(backend.Options{})
		if err != nil {
			return nil, nil, err
		}
		g, err := redisfence.New(rdb, redisfence.Config{KeyPrefix: s.marks})
		if err != nil {
			rdb.Close()
			return nil, nil, err
		}
		return g, func() { rdb.Close() }, nil
	},
}

var etcd = kind{
	scheme:  "etcd",
	also:    []string{"etcds"},
	example: "etcd://127.0.0.1:2379",
	parse:   parseServer,
	open: func(_ context.Context, s Store) (fence.Resetter, func(), error) {
		cli, err := s.url.EtcdClient(backend.Options{Connect: s.Connect})
		if err != nil {
			return nil, nil, err
		}
		g, err := etcdfence.New(cli, etcdfence.Config{Prefix: s.marks})
		if err != nil {
			cli.Close()
			return nil, nil, err
		}
		return g, func() { cli.Close() }, nil
	},
}
