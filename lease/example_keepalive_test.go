package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// A backend whose renewal is one call. The attempt that takes the lock is the first one; KeepAlive
// does the rest until the lock is over. Here the record is gone at the second renewal.
func ExampleKeepAlive() {
	clock := lease.SystemClock()
	st := lease.New(lockstep.MinTTL)

	attempt := st.Sending(clock.Now())
	// ... take the lock on the server ...
	st.Confirm(clock.Now(), attempt)

	renewals := 0
	err := lease.KeepAlive(context.Background(), clock, st, func(context.Context) error {
		if renewals++; renewals == 2 {
			return &lockstep.LossError{Reason: lockstep.RecordMissing}
		}
		return nil
	})
	fmt.Println(errors.Is(err, lockstep.ErrLost), err)
	fmt.Println(st.Valid(clock.Now()), st.Remaining(clock.Now()) < time.Millisecond)
	// Output:
	// true lockstep: lock lost: record missing
	// false true
}
