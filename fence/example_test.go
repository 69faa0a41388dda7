package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/memlock"
)

// The classic story: A takes the lock and freezes beyond its lease, B takes over, and A
// wakes and writes late. The resource refuses A.
func Example() {
	ctx := context.Background()
	space := memlock.NewSpace() // stands in for the lock service
	a, b := space.Locker(), space.Locker()
	source, err := fence.For(a, "prod", "billing/nightly") // once, at the start of the program
	if err != nil {
		fmt.Println(err)
		return
	}
	guard := fence.NewMemory(0) // stands in for the resource

	lockA, _ := a.Acquire(ctx, "billing/nightly")
	a.Expire() // A is frozen, and its lease ends
	lockB, _ := b.Acquire(ctx, "billing/nightly")

	fmt.Println("B enters:", guard.Admit(ctx, "invoices", source.Grant(lockB.Token()), fence.Enter))
	err = guard.Admit(ctx, "invoices", source.Grant(lockA.Token()), fence.Write)
	fmt.Println("A writes:", err)
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok {
		fmt.Println("tokens:", refused.Grant.Token, refused.Mark.Token)
	}
	// Output:
	// B enters: <nil>
	// A writes: fence: token is older than one seen here: token 1 of lock billing/nightly, seen 2: a later holder is at work, stop and do not retry
	// tokens: 1 2
}

// Any store with an atomic step can be guarded: read the mark, decide, and write mark and
// data together. Here the atomic step is one assignment.
func ExampleMark_Admit() {
	type row struct {
		mark  fence.Mark
		value string
	}
	var stored row
	write := func(g fence.Grant, value string) error {
		next, err := stored.mark.Admit(g, fence.Write)
		if err != nil {
			return err
		}
		stored = row{next, value}
		return nil
	}

	grant := func(token lockstep.Token) fence.Grant {
		return fence.Grant{Backend: "native:prod", Lock: "orders/42", Token: token}
	}
	fmt.Println(write(grant(8), "by the new holder"))
	fmt.Println(errors.Is(write(grant(7), "by the old holder"), fence.ErrStale))
	fmt.Println(stored.value)
	// Output:
	// <nil>
	// true
	// by the new holder
}

// Work that must be done once per grant: the retry after a lost reply learns that it is done.
func ExampleStep() {
	ctx := context.Background()
	guard := fence.NewMemory(0)
	grant := fence.Grant{Backend: "native:prod", Lock: "billing/nightly", Token: 7}

	fmt.Println(guard.Admit(ctx, "invoice/4711", grant, fence.WriteOnce)) // the reply is lost
	err := guard.Admit(ctx, "invoice/4711", grant, fence.WriteOnce)
	fmt.Println(errors.Is(err, fence.ErrAlready))
	// Output:
	// <nil>
	// true
}

// A backend whose tokens do not rise is refused when the program starts, not when it matters.
func ExampleFor() {
	var locker lockstep.Locker = oneRedisKey{memlock.New()}

	_, err := fence.For(locker, "prod", "orders/42")
	fmt.Println(errors.Is(err, lockstep.ErrUnsupported))
	// Output:
	// true
}

type oneRedisKey struct{ lockstep.Locker }

func (oneRedisKey) Capabilities() lockstep.Capabilities {
	return lockstep.Capabilities{Backend: "redis", ClockBound: true}
}

// An operator moves the lock to another cluster: its tokens do not compare with those of the old
// one, so the mark is explicitly given to the new lock.
func ExampleMemory_Reset() {
	ctx := context.Background()
	guard := fence.NewMemory(0)
	fmt.Println(guard.Admit(ctx, "invoices", fence.Grant{Backend: "native:old", Lock: "billing", Token: 900}, fence.Write))
	moved := fence.Grant{Backend: "etcd:prod", Lock: "billing", Token: 12}
	fmt.Println(errors.Is(guard.Admit(ctx, "invoices", moved, fence.Write), fence.ErrForeign))

	present, _ := guard.Mark(ctx, "invoices")
	fmt.Println(guard.Reset(ctx, "invoices", present, fence.Mark{Backend: "etcd:prod", Lock: "billing"}))
	fmt.Println(guard.Admit(ctx, "invoices", moved, fence.Write))
	// Output:
	// <nil>
	// true
	// <nil>
	// <nil>
}

// Counts show how often the guard had to step in.
func ExampleCounts() {
	ctx := context.Background()
	var counts fence.Counts
	guard := fence.Observed(fence.NewMemory(0), &counts)
	for _, token := range []lockstep.Token{7, 8, 7} {
		guard.Admit(ctx, "x", fence.Grant{Backend: "native:prod", Lock: "orders/42", Token: token}, fence.Write)
	}
	fmt.Printf("%+v\n", counts.Tally())
	// Output:
	// {Accepted:2 Stale:1 Already:0 Foreign:0 NoToken:0 Invalid:0}
}
