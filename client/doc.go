// Package client is the native Locker: locks of a Lockstep cluster over gRPC.
//
//	c, err := client.New(client.Config{Endpoints: []string{"n1:7400", "n2:7400", "n3:7400"}})
//	...
//	defer c.Close(context.Background())
//	l, err := c.Acquire(ctx, "billing/nightly")
//
// A [Client] has one session and one stream to the cluster's leader, however many
// locks it holds. It finds the leader among the endpoints, reconnects with
// jitter, and resumes after a change of leader with nothing lost. A lock is lost by the
// client's own clock at the end of its lease, whether or not the network lives; after that
// the client goes on in a new session.
//
// [New] starts nothing. The first Acquire starts two goroutines, each connection
// one more, and [Client.Close] ends them all. The rules of the session are in package session, which is pure;
// this package adds the clock, the network and the waiting.
//
// [Client.Detach] and [Client.Attach] hand a lock from process to process: an attached one has a session, a stream
// and goroutines of its own.
//
// [Admin] reads the state of a cluster and does what operators do.
package client
