// Package etcdlock implements locks in etcd.
//
// [New] makes a [Locker] from an etcd client, which the caller still owns. It implements the
// contract of package lockstep: exclusive and shared locks, granted in request order, with fencing
// tokens. A grant needs a majority of etcd's members. The loss of a minority, including the leader,
// loses no lock.
//
// # What it does not promise
//
// A lock is advice, as on every backend: a holder that was paused may act after its lease has
// ended. Safety comes from the guard at the resource, which compares tokens.
//
// Tokens are revisions of etcd. They rise as long as etcd keeps its history. Restoring a backup
// brings back old revisions unless the restore raises them: see the Notes of [Locker.Capabilities].
//
// Anyone who may write below the prefix of the [Config] can end or forge a claim. Use etcd's users
// and roles to prevent that.
//
// # The client
//
// Give the client the endpoints of all members, and keepalives (DialKeepAliveTime of 10 s, which is
// gRPC's minimum, and DialKeepAliveTimeout of a few seconds). Without them it never notices a
// connection that died silently, and from then on a third of its requests take 2 s longer. For that
// reason a renewal is sent twice within TTL/3, so that the lease does not depend on one connection.
//
// # How it works
//
// A Locker has one session: a lease in etcd, and a key attached to it. Each claim is its own key,
// attached to the same lease, below a prefix that belongs to the lock's name. The create revisions
// of the keys form the queue: an exclusive claim holds the lock when there is no older key below
// the prefix, a shared one when there is no older key of an exclusive claim. A waiter watches the
// youngest key that blocks it, and checks again when that key is gone; so a release wakes one
// waiter, or the shared ones behind it. Deleting the key releases the lock or leaves the queue.
//
// A free lock takes one transaction, and so does a release. Handing a lock over takes the deletion,
// the watch event and one read. Joining other shared holders takes one more transaction. In
// addition, a session sends one renewal every TTL/3, however many locks it holds. Each waiting
// claim reads the keys of its lock twice, and with a queue of n claims each read costs etcd n keys;
// occasionally it reads the one key it waits for, in case its watch has died. One Locker has at
// most 16 creations and 16 deletions in progress, so that a thousand goroutines leave room for its
// renewals.
//
// The holder counts its lease from when it sent the renewal that etcd confirmed. etcd's leader
// counts from its arrival. A leader that was paused checks that it still leads before it renews. A
// leader that is cut off continues for up to two election timeouts, but a successor, elected no
// sooner than after one, restarts every lease and adds an election timeout. So the holder's lease
// ends first as long as the clock rates of the machines differ by less than 2 %; times of different
// machines are never compared. This holds since etcd 3.5.13 and 3.4.31.
//
// A detached lock gets its own lease, to which its key moves without losing its place; the process
// that attaches it renews that lease.
//
// # Invariants
//
//  1. A claim is granted at a revision at which its key exists, attached to its lease, and no older
//     key blocks it. Nothing older can appear later. A lease that ends removes its keys in one
//     revision, so no claim of an ended session is granted.
//  2. The token of an exclusive claim is the create revision of its key, so tokens rise in the
//     order of the grants. Shared claims that hold a lock together have one token: that of the
//     first, which later ones copy into their keys while the first exists. It lies between the
//     tokens of the exclusive claims before and after.
//  3. A creation takes effect at most once, and not at all after its claim was dropped. The key
//     contains the claim's id, so a repeated creation finds the first one. It is conditional on a
//     known revision of the session's key; dropping a claim whose creation was not answered writes
//     to the session's key.
//  4. Dropping a claim deletes its own key, or none.
//  5. A lock whose key is deleted, or whose lease is revoked, is lost at once: its holder watches
//     the key.
package etcdlock
