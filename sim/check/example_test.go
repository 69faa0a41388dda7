package check_test

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/sim/check"
)

// A service answers that a claim was granted. No replica has applied anything like it.
func ExampleBook_Told() {
	book := check.NewBook(1, nil)

	v := book.Told(machine.SessionID{15: 7}, machine.ClaimStatus{Seq: 1, State: machine.Granted, Token: 42})

	fmt.Println(v.Promise)
	// Output: what was acknowledged survives
}
