package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
)

// databaseURL is the URL of the tests' server.
func databaseURL() string {
	shared.once.Do(shared.start)
	if shared.err != nil {
		fmt.Fprintln(os.Stderr, shared.err)
		os.Exit(1)
	}
	return shared.server.URL()
}

// One process at a time does the nightly billing. The locks have their own pool, so that other work
// cannot keep renewals from getting a connection.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, databaseURL()+"&connect_timeout=3&pool_max_conns=4")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if err := pglock.Migrate(ctx, pool, pglock.DefaultTable); err != nil { // once, or as part of the program's migrations
		fmt.Println(err)
		return
	}
	locker, err := pglock.New(pool, pglock.Config{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(ctx)

	err = lockstep.Do(ctx, locker, "billing/nightly", func(ctx context.Context, token lockstep.Token) error {
		fmt.Println("billing, with a token:", token > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// billing, with a token: true
	// <nil>
}

// The error shows who is in the way, and so does the table.
func ExampleLocker_Inspect() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, databaseURL())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	locker, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(ctx)
	lock, err := locker.Acquire(ctx, "backup", lockstep.WithMetadata(map[string]string{"host": "db1", "pid": "4711"}))
	if err != nil {
		fmt.Println(err)
		return
	}

	_, err = lockstep.TryAcquire(ctx, locker, "backup")
	fmt.Println(errors.Is(err, lockstep.ErrBusy))
	state, err := locker.Inspect(ctx, "backup")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, holder := range state.Holders {
		fmt.Println(holder.Metadata["host"], holder.Metadata["pid"], holder.Token == lock.Token())
	}
	// Output:
	// true
	// db1 4711 true
}
