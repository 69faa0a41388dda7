package account

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep/adapter/redis/redisfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

func startRedis(_ context.Context, dir string) (*Store, error) {
	dir, err := os.MkdirTemp(dir, "redis-")
	if err != nil {
		return nil, err
	}
	server, err := redisserver.Start(redisserver.Config{Dir: dir, Persistence: redisserver.AppendAlways})
	if err != nil {
		return nil, err
	}
	return &Store{URL: "redis://" + server.Address() + "/0", Close: server.Close}, nil
}

func openRedis(_ context.Context, url, name string) (Pair, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return Pair{}, err
	}
	client := redis.NewClient(options)
	guard, err := redisfence.New(client, redisfence.Config{})
	return Pair{plainKey{client: client, name: name}, guarded{guard, name}}, err
}

type plainKey struct {
	unguarded
	client *redis.Client
	name   string
}

func (k plainKey) Read(ctx context.Context) (int, error) {
	value, err := k.client.Get(ctx, k.name).Bytes()
	if errors.Is(err, redis.Nil) {
		err = fs.ErrNotExist
	}
	return opened(value, err)
}

func (k plainKey) Write(ctx context.Context, _ fence.Grant, balance int) error {
	return k.client.Set(ctx, k.name, stored(balance), 0).Err()
}
