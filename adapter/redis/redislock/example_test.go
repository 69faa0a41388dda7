package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redislock"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

// exampleServer stands in for your server.
func exampleServer() (s *redisserver.Server, end func()) {
	dir, err := os.MkdirTemp("", "redislock-example-")
	if err != nil {
		panic(err)
	}
	s, err = redisserver.Start(redisserver.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	return s, func() {
		s.Close()
		os.RemoveAll(dir)
	}
}

// A nightly report that two machines might start: one does it, the other finds the lock taken. If
// both should do it after all, nothing breaks: this backend is made for such work.
func Example() {
	server, end := exampleServer()
	defer end()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: server.Address()}) // TLSConfig, Username, Password, ...
	defer rdb.Close()

	here, err := redislock.New(rdb, redislock.Config{})
	if err != nil {
		panic(err)
	}
	defer here.Close(ctx)
	there, err := redislock.New(rdb, redislock.Config{})
	if err != nil {
		panic(err)
	}
	defer there.Close(ctx)

	lock, err := here.Acquire(ctx, "reports/nightly", lockstep.WithMetadata(map[string]string{"host": "web-1"}))
	if err != nil {
		panic(err)
	}
	_, err = lockstep.TryAcquire(ctx, there, "reports/nightly")
	var busy *lockstep.BusyError
	if errors.As(err, &busy) {
		fmt.Println("busy, held by", busy.Holders[0].Metadata["host"])
	}
	fmt.Println("release:", lock.Release(ctx))

	again, err := there.Acquire(ctx, "reports/nightly")
	if err != nil {
		panic(err)
	}
	fmt.Println("larger token:", again.Token() > lock.Token())
	fmt.Println("fenced:", there.Capabilities().Fenced)
	// Output:
	// busy, held by web-1
	// release: <nil>
	// larger token: true
	// fenced: false
}
