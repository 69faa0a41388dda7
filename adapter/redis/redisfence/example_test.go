package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redisfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
	"github.com/lockstep-dev/lockstep/memlock"
)

// withRedis calls f with a client of a server that stands in for yours.
func withRedis(f func(*redis.Client)) {
	dir, err := os.MkdirTemp("", "redisfence-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := redisserver.Start(redisserver.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	rdb := redis.NewClient(&redis.Options{Addr: s.Address()})
	defer rdb.Close()
	f(rdb)
}

// A holder freezes beyond its lease. The script that would have written refuses its late write.
func Example() {
	withRedis(func(rdb *redis.Client) {
		ctx := context.Background()
		space := memlock.NewSpace() // stands in for the lock service
		a, b := space.Locker(), space.Locker()
		source, err := fence.For(a, "prod", "billing/nightly")
		if err != nil {
			panic(err)
		}
		guard, err := redisfence.New(rdb, redisfence.Config{})
		if err != nil {
			panic(err)
		}

		lockA, _ := a.Acquire(ctx, "billing/nightly")
		a.Expire() // A is frozen, and its lease ends
		lockB, _ := b.Acquire(ctx, "billing/nightly")

		fmt.Println("B enters:", guard.Enter(ctx, "total", source.Grant(lockB.Token())))
		fmt.Println("B writes:", guard.Write(ctx, "total", source.Grant(lockB.Token()), []byte("100")))
		err = guard.Write(ctx, "total", source.Grant(lockA.Token()), []byte("99"))
		fmt.Println("A is refused:", errors.Is(err, fence.ErrStale))
		total, _ := guard.Read(ctx, "total")
		fmt.Printf("total: %s\n", total)
	})
	// Output:
	// B enters: <nil>
	// B writes: <nil>
	// A is refused: true
	// total: 100
}

// Data of any shape: the guard's script runs yours if the token is new enough.
func ExampleGuard_Run() {
	withRedis(func(rdb *redis.Client) {
		ctx := context.Background()
		guard, err := redisfence.New(rdb, redisfence.Config{})
		if err != nil {
			panic(err)
		}
		account := "account:" + guard.Tag("account") // in the slot of the mark, for a Cluster
		book := func(token lockstep.Token, cents string) error {
			grant := fence.Grant{Backend: "native:prod", Lock: "accounts", Token: token}
			return guard.Run(ctx, "account", grant, fence.Write, redisfence.Work{
				Lua: `redis.call('HINCRBY', KEYS[1], 'cents', ARGV[1])
				      redis.call('HINCRBY', KEYS[1], 'bookings', 1)`,
				Keys: []string{account}, Args: []string{cents},
			})
		}
		fmt.Println(book(7, "250"), book(8, "50"))
		fmt.Println("late:", errors.Is(book(7, "1000"), fence.ErrStale))
		fmt.Println(rdb.HGet(ctx, account, "cents").Val(), rdb.HGet(ctx, account, "bookings").Val())
	})
	// Output:
	// <nil> <nil>
	// late: true
	// 300 2
}
