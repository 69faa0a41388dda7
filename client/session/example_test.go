package session_test

import (
	"fmt"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client/session"
)

// A shell tells the session what happens and when, sends the requests that it returns and acts on
// its updates.
func Example() {
	s := session.New(session.Config{TTL: 10 * time.Second})
	drain := func() {
		requests, updates := s.Drain()
		for _, r := range requests {
			fmt.Printf("send %T\n", r.GetBody())
		}
		for _, u := range updates {
			fmt.Println("told", u.Kind)
		}
	}
	s.Connected(0)
	drain()
	s.Receive(20*time.Millisecond, &pb.ServerEvent{Tag: 1, Body: &pb.ServerEvent_Opened{
		Opened: &pb.StreamOpened{Session: "s1", TtlMs: 10_000, GraceMs: 500},
	}})
	drain()
	fmt.Println("valid until", s.ValidUntil(), "if nothing is heard any more")
	s.Tick(s.NextTick())
	drain()
	s.Tick(s.ValidUntil())
	drain()
	// Output:
	// send *lockstepv1.ClientRequest_Open
	// told opened
	// valid until 9.8s if nothing is heard any more
	// send *lockstepv1.ClientRequest_KeepAlive
	// told over
}
