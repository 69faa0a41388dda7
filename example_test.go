package lockstep_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

// One process at a time does the nightly billing. The context of the work ends when
// the lock does, and the token goes to the resource, which refuses older ones.
func ExampleDo() {
	var locker lockstep.Locker = memlock.New() // or a client of the service, Redis, etcd, ...
	ctx := context.Background()

	err := lockstep.Do(ctx, locker, "billing/nightly", func(ctx context.Context, token lockstep.Token) error {
		fmt.Println("billing with token", token)
		return nil
	})
	fmt.Println(err)
	// Output:
	// billing with token 1
	// <nil>
}

// A lock has its own lifetime: its context says when it ends, and why.
func ExampleLocker() {
	space := memlock.NewSpace()
	locker := space.Locker()
	ctx := context.Background()

	lock, err := locker.Acquire(ctx, "orders/42", lockstep.WithMetadata(map[string]string{"host": "h1"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Release(ctx)

	space.Revoke("orders/42", "alice") // an operator takes it away
	<-lock.Context().Done()
	fmt.Println(context.Cause(lock.Context()))
	// Output:
	// lockstep: lock lost: revoked by alice
}

// A try that fails says who is in the way.
func ExampleTryAcquire() {
	locker := memlock.New()
	ctx := context.Background()
	labels := lockstep.WithMetadata(map[string]string{"host": "db1", "pid": "4711"})
	if _, err := locker.Acquire(ctx, "backup", labels); err != nil {
		fmt.Println(err)
	}

	_, err := lockstep.TryAcquire(ctx, locker, "backup")
	if errors.Is(err, lockstep.ErrBusy) {
		fmt.Println(err)
	}
	// Output:
	// acquire backup: lockstep: lock is busy: held by memory-1 host="db1" pid="4711"
}

// Two kinds of bounded wait: one ends with its own error, the other with that of the context.
func ExampleWithWait() {
	locker := memlock.New()
	ctx := context.Background()
	if _, err := locker.Acquire(ctx, "report"); err != nil {
		fmt.Println(err)
	}

	_, err := locker.Acquire(ctx, "report", lockstep.WithWait(20*time.Millisecond))
	fmt.Println(errors.Is(err, lockstep.ErrBusy), lockstep.SafeToRetry(err))

	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = locker.Acquire(ctx, "report")
	fmt.Println(errors.Is(err, context.DeadlineExceeded), lockstep.SafeToRetry(err))
	// Output:
	// true true
	// true false
}

// Readers hold a lock together; a writer waits for all of them.
func ExampleWithShared() {
	locker := memlock.New()
	ctx := context.Background()
	one, _ := locker.Acquire(ctx, "catalogue", lockstep.WithShared())
	two, _ := locker.Acquire(ctx, "catalogue", lockstep.WithShared())
	_, err := lockstep.TryAcquire(ctx, locker, "catalogue")
	fmt.Println(errors.Is(err, lockstep.ErrBusy))

	one.Release(ctx)
	two.Release(ctx)
	writer, _ := lockstep.TryAcquire(ctx, locker, "catalogue")
	fmt.Println(writer.Token() > one.Token())
	// Output:
	// true
	// true
}

// At most three downloads at a time, across all processes.
func ExampleWithPermits() {
	locker := memlock.New()
	ctx := context.Background()
	for range 3 {
		if _, err := lockstep.TryAcquire(ctx, locker, "downloads", lockstep.WithPermits(1, 3)); err != nil {
			fmt.Println(err)
		}
	}
	_, err := lockstep.TryAcquire(ctx, locker, "downloads", lockstep.WithPermits(1, 3))
	fmt.Println(errors.Is(err, lockstep.ErrBusy))
	// Output:
	// true
}

// A transfer needs two accounts. All names of a claim are granted at once, so two transfers in
// opposite directions cannot deadlock.
func ExampleWithAlso() {
	locker := memlock.New()
	ctx := context.Background()
	lock, err := locker.Acquire(ctx, "accounts/17", lockstep.WithAlso("accounts/4"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lock.Names())
	// Output:
	// [accounts/17 accounts/4]
}

// A name that breaks a rule is refused with the rule, before anything is sent.
func ExampleCheckName() {
	fmt.Println(lockstep.CheckName("billing/nightly"))
	fmt.Println(lockstep.CheckName("billing//nightly"))
	fmt.Println(lockstep.CheckName("tab\there"))
	// Output:
	// <nil>
	// lockstep: name "billing//nightly": must not begin or end with "/" or contain "//"
	// lockstep: name "tab\there": must not contain the character '\t'
}
