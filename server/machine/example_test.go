package machine_test

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// Two sessions want the same lock. The first gets it, the second waits and gets it with a larger
// token when the first session expires.
func Example() {
	m := machine.New()
	out := m.Apply(1, 1, &command.Entry{Commands: []command.Command{
		command.SetTokenFloor{Floor: 100},
		command.OpenSession{TTL: 10_000, ClientNumbered: true},
		command.OpenSession{TTL: 10_000, ClientNumbered: true},
	}})
	first, second := out.Results[1].Session, out.Results[2].Session

	spec := command.Spec{Names: []string{"billing/nightly"}}
	out = m.Apply(2, 1, &command.Entry{Commands: []command.Command{
		command.Acquire{Session: first, Seq: 1, Floor: 1, Spec: spec},
		command.Acquire{Session: second, Seq: 1, Floor: 1, Spec: spec},
	}})
	for _, r := range out.Results {
		fmt.Println(r.Claim.State, "token", r.Claim.Token, "position", r.Claim.Position)
	}

	const term = 1
	out = m.Apply(3, term, &command.Entry{Commands: []command.Command{
		command.Expire{Term: term, Sessions: []command.SessionID{first}},
	}})
	for _, e := range out.Events {
		fmt.Println("event", e.Number, e.Kind, e.Name, "token", e.Token)
	}
	// Output:
	// granted token 100 position 0
	// queued token 0 position 1
	// event 3 expired billing/nightly token 100
	// event 4 granted billing/nightly token 101
}
