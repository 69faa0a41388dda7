package expiry_test

import (
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep/server/expiry"
)

// A leader that sleeps for a minute ends no lease while it sleeps.
func Example() {
	clock := expiry.NewClock(0, 100*time.Millisecond)
	var leases expiry.Deadlines[string]
	leases.Set("session 1", clock.Now()+10*time.Second)

	clock.Advance(time.Minute, true)
	due := clock.Settle(time.Minute)
	_, ended := leases.Next(due)
	fmt.Println("after a minute asleep, due up to", due, "ended:", ended)

	for t := time.Minute; t <= 70*time.Second; t += 50 * time.Millisecond {
		clock.Advance(t, true)
	}
	session, ended := leases.Next(clock.Settle(70 * time.Second))
	fmt.Println("ten seconds awake, ended:", session, ended)
	// Output:
	// after a minute asleep, due up to 100ms ended: false
	// ten seconds awake, ended: session 1 true
}
