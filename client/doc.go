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
// [New] starts nothing. The first Acquire starts two goroutines, each connection one more, and
// [Client.Close] ends them all. The rules of the session are in package session, which is pure;
// this package adds the clock, the network and the waiting.
//
// [Client.Detach] and [Client.Attach] hand a lock from process to process: an attached one has a
// session, a stream and goroutines of its own.
//
// When no node serves, the error is an [OutageError]: one summary of what every endpoint answered.
// [Client.Outage] tells it while calls still wait.
//
// # One cluster
//
// A client belongs to the cluster of the first node that answers, or to [Config.Cluster]. Each
// request names it, and a node of another cluster does nothing; each answer is looked at before it
// is believed. In addition, all endpoints are asked once for their cluster, at the same time as the
// first claim is made: no lock is handed out before all have answered or cannot be reached, or 100
// ms have passed since a majority of them agreed, or 3 s in all. While fewer than a majority have
// answered, they are asked again with later calls. A node that did not answer is looked at when it
// is used. Endpoints of two clusters make calls fail with [ErrTwoClusters], those of Acquire that
// wait too. Locks that are held stay, and are renewed by their own cluster alone. The next call
// asks the endpoints again.
//
// A restore makes another cluster with the same endpoints. When a majority of the endpoints answers
// for one other cluster, and none for the old one, the client switches to it: all locks are lost,
// with [lockstep.RecordMissing] as the reason, claims that wait are made again in the new cluster,
// and the log has a warning. Until then it is [lockstep.ErrUnavailable]. A client with
// Config.Cluster never switches, and neither does an attached lock.
//
// A node that does not tell its cluster, of a build before this rule, is believed to be of the
// right one.
//
// [Admin] reads the state of a cluster and does what operators do.
package client
