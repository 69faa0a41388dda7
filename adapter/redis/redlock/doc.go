// Package redlock is the lock over N independent Redis masters, known as Redlock, with fencing
// tokens.
//
// A lock is held by whoever has its record on a majority of the nodes. No node knows of the others,
// and there is no failover: a node that is down costs its vote, and two of five may be down.
//
// # What it promises, and what it does not
//
// Exclusion holds as long as clocks run at about the same rate and nodes keep what they have
// answered. It breaks when a node's clock jumps ahead, since Redis ends records by wall time, and
// when a node is started again without what it had stored. A holder can be paused as with any
// lease. So the lock is advice, and the safety is the guard at the resource that refuses an older
// token. Tokens are made to be still right when exclusion is not: see below.
//
// Set appendonly yes and appendfsync always on every node. Without it a node that crashes forgets
// who holds what, and tokens are only as good as the nodes' wall clocks. maxmemory-policy must be
// noeviction. Replicas, clusters, sentinels, servers before Redis 7 and two clients of one server
// are refused when they are found out, at the first use and after each broken connection. A replica
// that is promoted behind the address of its master is not found out: do not use one.
//
// Waiters poll with jitter and are served in no order. While several want a lock that becomes free,
// the votes can be split so that nobody gets it; each then gives back what it had and tries again
// after a random time.
//
// # The protocol
//
// An attempt has a random value of its own, the secret of its records. Requests are sent to all
// nodes at once and each is sent once.
//
//  1. Step 1. Each node is asked to set the record, if there is none, with the TTL. A node that
//     does tells a reading: the larger of its counter, one for all names, and of its wall clock as
//     seconds since 2025 shifted by 22 bits, plus the microseconds. The record keeps the reading.
//     With less than a majority read within the node timeout the attempt has failed.
//  2. Step 2. The token is 1 more than the largest reading. Each node that was read in step 1 is
//     asked to raise its counter to the token, if the record there has our secret and that reading.
//     With less than a majority that did so the attempt has failed.
//  3. An attempt that has failed is undone on all nodes that may have its record, by
//     compare-and-delete. Nothing else ever deletes one.
//  4. The lease begins before step 1 is sent: what is left of it is TTL - elapsed - margin, for
//     both steps. A grant that comes when it is over is given back by package locker, which keeps
//     the lease.
//  5. A renewal is a compare-and-extend on all nodes, confirmed by a majority. When so many nodes
//     lack the record that no majority has it, the lock is lost at once. Nodes that lack it while a
//     majority has it, since they were down or forgot it, are asked as in step 1 to set it again;
//     they count from the next renewal on, and tokens do not depend on them.
//  6. A release is a compare-and-delete on all nodes. It is confirmed when a majority certainly
//     lacks the record, whatever the others have: those are told in the background until the record
//     has run out anyway.
//
// A step waits for all nodes at most the node timeout, and, once its outcome is decided, only as
// long again as that took.
//
// # Why two holders do not have the lock at once
//
//  1. A record that step 1 or a renewal has set does not run out before the lease that began before
//     its sending, as long as clocks run at about the same rate: the margin of package lease pays
//     for 2 %.
//  2. So while a holder's lease lasts, a majority has its record. It deletes none before it has
//     given the lock up.
//  3. Another would need a majority too. Two majorities share a node, and a node has one record of
//     a name.
//
// # Why tokens rise
//
// This needs no clock. Let A and B have won the same name, by whatever leases.
//
//  1. Each was read and raised on a majority of the nodes. Two majorities share a node: take one,
//     n.
//  2. On n the record of A was there from the reading of A to the raising of A, unbroken: the
//     raising compares the secret and the reading, and a record set anew after another was there
//     and raised the counter has a larger reading. The same holds for B.
//  3. n has one record of a name at a time. So one of them, say A, was raised on n before B was
//     read there.
//  4. The counter of n never falls as long as n keeps what it stored. So the reading of B on n is
//     at least the token of A.
//  5. The token of B is larger than each of its readings. So it is larger than that of A.
//  6. If A had won before B began, it could not be the other way round: B would have been raised on
//     n before it began. So tokens rise from holder to holder, and no two are the same.
//
// Step 4 is where a node that forgets breaks it. The reading is then that of its clock, which is
// ahead of the counter it had: a node would have to grant more than 4 million locks a second for
// its counter to overtake its clock. So the token still rises unless that node's clock was set back
// too.
//
// Step 1 is where counting a node whose answer was lost would break it: raised without having been
// read, it may know a larger token. A node that answers step 1 after step 2 has begun is not
// counted either.
//
// The model in this package's tests runs the same attempt against all orders of events that a few
// clients and nodes can see, with each of these rules and without it.
package redlock
