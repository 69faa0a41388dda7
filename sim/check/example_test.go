package check_test

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/sim/check"
)

// A service answers that a claim was granted. No replica has applied anything like it.
func ExampleBook_Told() {
	book := check.NewBook(1, nil)

	v := book.Told(command.SessionID{15: 7}, command.ClaimStatus{Seq: 1, State: command.Granted, Token: 42})

	fmt.Println(v.Promise)
	// Output: what was acknowledged survives
}
