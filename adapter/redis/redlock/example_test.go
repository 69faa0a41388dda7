package redlock_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redlock"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

// Three servers are started here, each with its own directory. In production use five, on machines
// that fail independently, with appendonly yes, appendfsync always and maxmemory-policy noeviction.
func Example() {
	var nodes []*redis.Client
	for range 3 {
		dir, err := os.MkdirTemp("", "redlock-example-")
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(dir)
		server, err := redisserver.Start(redisserver.Config{Dir: dir, Persistence: redisserver.AppendAlways})
		if err != nil {
			log.Fatal(err)
		}
		defer server.Close()
		client := redis.NewClient(&redis.Options{Addr: server.Address()})
		defer client.Close()
		nodes = append(nodes, client)
	}

	locker, err := redlock.New(nodes, redlock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locker.Close(ctx)

	err = lockstep.Do(ctx, locker, "billing/nightly", func(ctx context.Context, token lockstep.Token) error {
		fmt.Println("held, with a token for the guard:", token > 0)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// held, with a token for the guard: true
	// error: <nil>
}
