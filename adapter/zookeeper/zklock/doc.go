// Package zklock is a [lockstep.Locker] on ZooKeeper 3.5.3 or newer.
//
// # The protocol
//
// A lock is the directory <root>/locks/<name>, a container node that ZooKeeper removes after it has
// been empty for a minute or two. A claim is an ephemeral sequential node in it, named after its
// mode and the claim's random id. An exclusive claim holds the lock when no node is before its own,
// a shared one when no exclusive node is. Each waiter watches one node: the one just before it, or
// for a shared claim the nearest exclusive one before it. So a release wakes one waiter, or the
// readers that waited for one writer.
//
// All locks of a Locker belong to one session, which is opened by the first call that needs one,
// and reopened after it was lost. A claim belongs to the session in which it was made, and ends
// with it.
//
// # The lease
//
// ZooKeeper ends a session when its leader has not heard from it for the session timeout. The
// timeout that counts is the one that the server granted, clamped to its own bounds, by default 2
// to 20 ticks. The client library doesn't show it, so it is read from the connection.
//
// A session is renewed by writing its own node <root>/sessions/<id>, which needs a quorum; a read
// could be answered by a server that is cut off from the others. But even a write does not reset
// the timer that counts: a follower forwards it, and reports the sessions that it has heard from in
// its next answer to a ping of the leader, every half tick. If the follower dies in between, the
// leader counts from an earlier sign of life. So does the Locker: a confirmed write renews the
// lease, but the session timeout counts from when the Locker sent the newest request that the
// leader has certainly heard of before that write: see evidence.go. A disconnect proves nothing,
// and nothing is counted from it.
//
// # Tokens
//
// The token of an exclusive claim is the czxid of its node: the number of the transaction that
// created it. It is the epoch of the leader, shifted left by 32, plus a counter, so it stays below
// 2^53 for 2^21 elections; after that, claims are refused. It rises from holder to holder because
// holders follow each other in the order of their nodes' creation.
//
// A shared claim takes the token of the nearest shared claim before it that still exists, or else
// its own czxid, and writes it into its node before it counts as granted. So concurrent holders
// have the same token: a guard that has seen one does not refuse the others. Shared claims that are
// granted together get their tokens one after the other.
//
// # Invariants
//
//  1. A claim id is used in one session and made once. If the answer to a create is lost, the node
//     is looked for by that id, on a server that has caught up, before the create is repeated: no
//     ghost stays in the queue.
//  2. A node is only deleted by its full path or its claim's id, so no other claim is affected.
//  3. Nothing is granted unless the session's lease is valid at that moment by the local clock.
//  4. The client library is prevented from opening another session after an expiry, so a request of
//     one session never reaches another.
//  5. The holder's lease ends before the leader may end the session, as long as clock rates differ
//     by less than 2 %, the session timeout is at least two ticks, and no observer is behind
//     another server (observerMasterPort).
//
// # What it does not promise
//
// Tokens go back if ZooKeeper is restored from a backup. A paused holder can act after its lease:
// the guard at the resource refuses it. Anyone who may write below the root can end any lock; see
// [Config] for access rights. A name that gets more than 2^31 claims without an idle minute is
// refused, since ZooKeeper then stops numbering them.
package zklock
