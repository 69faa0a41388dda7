// Package redlock implements Redlock, locks over N independent Redis masters, with fencing tokens.
//
// A lock is held by the claim that has its record on a majority of the nodes. The nodes do not know
// each other, and there is no failover: a node that is down loses its vote, and two of five may be
// down.
//
// # What it promises, and what it does not
//
// Exclusion holds as long as clocks run at about the same rate and nodes keep what they have
// confirmed. It breaks if a node's clock jumps ahead, since Redis expires records by wall time, or
// if a node restarts without its stored data. A holder can be paused, as with any lease. So the
// lock is advice, and safety comes from a guard at the resource that refuses older tokens. Tokens
// are designed to be correct even when exclusion fails: see below.
//
// Set appendonly yes and appendfsync always on every node. Without it a node that crashes forgets
// who holds what, and tokens are only as good as the nodes' wall clocks. maxmemory-policy must be
// noeviction. Replicas, clusters, sentinels, servers before Redis 7 and two clients of one server
// are refused when detected, at the first use and after each broken connection. A replica that is
// promoted behind the address of its master is not detected: do not use one.
//
// Waiters poll with jitter and are not served in order. If several want a lock that becomes free,
// the votes can be split so that none gets it; each then releases the records it has and retries
// after a random time.
//
// # The protocol
//
// Each attempt has its own random value, the secret of its records. Requests are sent to all nodes
// at once, each only once.
//
//  1. Step 1. Each node is asked to set the record, if there is none, with the TTL. A node that
//     does so reports a reading: the larger of its counter, one for all names, and its wall clock
//     as seconds since 2025 shifted by 22 bits, plus the microseconds. The record keeps the
//     reading. If fewer than a majority were read within the node timeout, the attempt has failed.
//  2. Step 2. The token is 1 more than the largest reading. Each node that was read in step 1 is
//     asked to raise its counter to the token, if the record there has our secret and that reading.
//     If fewer than a majority did so, the attempt has failed.
//  3. A failed attempt is undone on all nodes that may have its record, by compare-and-delete. Only
//     compare-and-delete ever deletes a record.
//  4. The lease begins before step 1 is sent: after both steps, TTL - elapsed - margin of it is
//     left. Package locker keeps the lease and releases a grant that arrives after its end.
//  5. A renewal is a compare-and-extend on all nodes, confirmed by a majority. If so many nodes are
//     without the record that no majority can have it, the lock is lost at once. If a majority has
//     it, nodes without it, which were down or lost it, are asked to set it again as in step 1;
//     they count from the next renewal on, and tokens do not depend on them.
//  6. A release is a compare-and-delete on all nodes. It is confirmed when a majority certainly
//     does not have the record, whatever the others have: deleting it there is retried in the
//     background until it has run out anyway.
//
// A step waits for all nodes for at most the node timeout and, once its outcome is decided, only as
// long again as that took.
//
// # Why two holders do not have the lock at once
//
//  1. A record set by step 1 or a renewal does not expire before the lease, which began before the
//     request was sent, as long as clocks run at about the same rate: the margin of package lease
//     covers 2 %.
//  2. So while a holder's lease lasts, a majority has its record. It deletes none before it has
//     given up the lock.
//  3. Another would need a majority too. Two majorities share a node, and a node has one record per
//     name.
//
// # Why tokens rise
//
// This needs no clock. Let A and B have won the same name, whatever their leases.
//
//  1. Each was read and raised on a majority of the nodes. Two majorities share a node: take one,
//     n.
//  2. On n the record of A existed without interruption from the reading of A to the raising of A:
//     raising compares the secret and the reading, and a record that was set again after another
//     one existed and raised the counter has a larger reading. The same holds for B.
//  3. n has one record per name at a time. So one of them, say A, was raised on n before B was read
//     there.
//  4. The counter of n never decreases as long as n keeps what it stored. So the reading of B on n
//     is at least the token of A.
//  5. The token of B is larger than each of its readings. So it is larger than the token of A.
//  6. If A had won before B began, it could not be the other way around: B would have been raised
//     on n before it began. So tokens rise from holder to holder, and no two are the same.
//
// A node that loses its data breaks point 4. Its reading then comes from its clock, which is ahead
// of its old counter: a node would have to grant more than 4 million locks a second for its counter
// to overtake its clock. So the token still rises unless that node's clock was also set back.
//
// Counting a node whose answer was lost would break point 1: it would be raised without having been
// read, and may know a larger token. For the same reason a node that answers step 1 after step 2
// has begun is not counted.
//
// The model in this package's tests runs the same attempt code through all orders of events that a
// few clients and nodes can see, with and without each of these rules.
package redlock
