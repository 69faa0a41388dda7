package memlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

// importAll is the code under test: it stops when its lock is lost.
func importAll(ctx context.Context, l lockstep.Locker, files int, load func(file int)) error {
	return lockstep.Do(ctx, l, "import", func(ctx context.Context, _ lockstep.Token) error {
		for i := range files {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			load(i)
		}
		return nil
	})
}

// A test of what a program does when its lock is taken away in the middle.
func Example() {
	locker := memlock.New()
	loaded := 0
	err := importAll(context.Background(), locker, 10, func(int) {
		loaded++
		if loaded == 3 {
			locker.Expire()
		}
	})
	fmt.Println("loaded", loaded)
	fmt.Println(errors.Is(err, lockstep.ErrLost), err)
	// Output:
	// loaded 3
	// true lockstep: lock lost: session expired
}

// Two Lockers of one space are like two processes.
func ExampleSpace() {
	space := memlock.NewSpace()
	ctx := context.Background()
	mine, theirs := space.Locker(), space.Locker()
	first, err := mine.Acquire(ctx, "leader")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = lockstep.TryAcquire(ctx, theirs, "leader")
	fmt.Println("busy:", errors.Is(err, lockstep.ErrBusy))

	space.Revoke("leader", "alice")
	fmt.Println(first.Check())
	first.Release(ctx) // the holder confirms that it has stopped

	second, err := lockstep.TryAcquire(ctx, theirs, "leader")
	fmt.Println("token rises:", err == nil && second.Token() > first.Token())
	// Output:
	// busy: true
	// lockstep: lock lost: revoked by alice
	// token rises: true
}
