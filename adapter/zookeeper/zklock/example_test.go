package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
	"github.com/lockstep-dev/lockstep/internal/testbed/zkserver"
)

func Example() {
	servers, stop := exampleServers()
	defer stop()
	ctx := context.Background()

	locks, err := zklock.New(zklock.Config{Servers: servers, TTL: 3 * time.Second})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)

	lock, err := locks.Acquire(ctx, "billing/nightly", lockstep.WithMetadata(map[string]string{"host": "db1"}))
	if err != nil {
		panic(err)
	}
	fmt.Println("held:", lock.Check() == nil, "with a token:", lock.Token() > 0)

	_, err = lockstep.TryAcquire(ctx, locks, "billing/nightly")
	busy, _ := errors.AsType[*lockstep.BusyError](err)
	fmt.Println("busy: held by", busy.Holders[0].Metadata["host"])

	fmt.Println("released:", lock.Release(ctx) == nil)
	// Output:
	// held: true with a token: true
	// busy: held by db1
	// released: true
}

// Readers hold a lock together, and have the same token.
func ExampleLocker_shared() {
	servers, stop := exampleServers()
	defer stop()
	ctx := context.Background()
	locks, err := zklock.New(zklock.Config{Servers: servers, TTL: 3 * time.Second})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)

	one, err := locks.Acquire(ctx, "catalogue", lockstep.WithShared())
	if err != nil {
		panic(err)
	}
	two, err := locks.Acquire(ctx, "catalogue", lockstep.WithShared())
	if err != nil {
		panic(err)
	}
	fmt.Println("same token:", one.Token() == two.Token())
	_, err = lockstep.TryAcquire(ctx, locks, "catalogue")
	fmt.Println("a writer:", errors.Is(err, lockstep.ErrBusy))
	// Output:
	// same token: true
	// a writer: true
}

// exampleServers starts a server. A program has its ensemble's addresses.
func exampleServers() (addresses []string, stop func()) {
	dir, err := os.MkdirTemp("", "zookeeper")
	if err != nil {
		panic(err)
	}
	e, err := zkserver.Start(zkserver.Config{Dir: dir, Servers: 1})
	if err != nil {
		panic(err)
	}
	return e.Addresses(), func() {
		e.Close()
		os.RemoveAll(dir)
	}
}
