// Package client is the native Locker: locks of a Lockstep cluster over gRPC.
//
//	c, err := client.New(client.Config{Endpoints: []string{"n1:7400", "n2:7400", "n3:7400"}})
//	...
//	defer c.Close(context.Background())
//	l, err := c.Acquire(ctx, "billing/nightly")
//
// A [Client] has one session and one stream to the cluster's leader, however many locks it holds.
// It finds the leader among the endpoints, reconnects with jitter, and resumes after a change of
// leader without losing anything. At the end of its lease a lock is lost by the client's own clock,
// whether or not the network is up; after that the client continues in a new session.
//
// [New] starts nothing. The first Acquire starts two goroutines and each connection one more;
// [Client.Close] ends them all. The session logic is in package session, which is pure; this
// package adds the clock, the network and the waiting.
//
// [Client.Detach] and [Client.Attach] hand a lock from process to process: an attached lock has its
// own session, stream and goroutines.
//
// If no node serves, the error is an [OutageError]: one summary of what every endpoint answered.
// [Client.Outage] returns it while calls are still waiting.
//
// # One cluster
//
// A client belongs to the cluster of the first node that answers, or to [Config.Cluster]. Each
// request names it, and a node of another cluster refuses it; each response is checked before it is
// trusted. In addition, all endpoints are asked once for their cluster, at the same time as the
// first claim is made: no lock is handed out before all have answered or are unreachable, or 100 ms
// have passed since a majority of them agreed, or 3 s have passed in total. While fewer than a
// majority have answered, later calls ask them again. A node that did not answer is checked when it
// is used. If the endpoints belong to two clusters, calls fail with [ErrTwoClusters], including
// waiting calls of Acquire. Held locks stay held, and only their own cluster renews them. The next
// call asks the endpoints again.
//
// A restore creates another cluster with the same endpoints. If a majority of the endpoints answer,
// all for one other cluster and none for the old one, the client switches to it: all locks are
// lost, with [lockstep.RecordMissing] as the reason, waiting claims are made again in the new
// cluster, and a warning is logged. Until then calls return [lockstep.ErrUnavailable]. A client
// with Config.Cluster never switches, and neither does an attached lock.
//
// A node that does not report its cluster, because its build predates this rule, is assumed to
// belong to the right one.
//
// [Admin] reads the state of a cluster and performs operator tasks.
package client
