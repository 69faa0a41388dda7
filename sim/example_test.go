package sim_test

import (
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep/sim"
)

// Ten seconds in the life of three nodes and their clients, with the faults that seed 42 draws. The
// same seed gives the same run everywhere.
func Example() {
	a := sim.Run(sim.Options{Seed: 42, Nodes: 3, Duration: 10 * time.Second})
	b := sim.Run(sim.Options{Seed: 42, Nodes: 3, Duration: 10 * time.Second})

	if a.Failure != nil {
		fmt.Println("broken promise:", a.Failure.Promise, a.Failure.Detail)
	}
	fmt.Println("grants were made:", a.Grants > 0)
	fmt.Println("the runs are equal:", a.TraceHash == b.TraceHash)
	// Output:
	// grants were made: true
	// the runs are equal: true
}
