// Package etcdlock takes locks in etcd.
//
// [New] makes a [Locker] of an etcd client, whose owner stays the caller. It keeps the contract of
// package lockstep: exclusive and shared locks, granted in the order of the requests, with fencing
// tokens. A majority of etcd's members must be there for a grant, and the loss of a minority, the
// leader among them, loses no lock.
//
// # What it does not promise
//
// A lock is advice, as on every backend: a holder that was paused may act after its lease has
// ended. The guard at the resource, which compares tokens, is the safety.
//
// Tokens are revisions of etcd. They rise as long as etcd keeps its history. Restoring a backup
// brings old revisions back, unless the restore raises them: see the Notes of
// [Locker.Capabilities].
//
// Whoever may write below the prefix of the [Config] can end or forge a claim. etcd's users and
// roles are there to prevent that.
//
// # The client
//
// Give the client the endpoints of all members, and keepalives (DialKeepAliveTime of 10 s, which is
// the least that gRPC allows, and DialKeepAliveTimeout of some seconds). Without them it never
// notices a connection that has died without a word: a third of its requests then take 2 s longer,
// for good. A renewal is sent twice within TTL/3 for that reason, so that the lease does not depend
// on it.
//
// # How it works
//
// A Locker has one session: a lease in etcd, and a key attached to it. A claim is a key of its own,
// attached to the same lease, below a prefix that belongs to the lock's name. The create revisions
// of the keys are the queue: an exclusive claim holds the lock when no older key is below the
// prefix, a shared one when no older key of an exclusive claim is. Who has to wait watches the
// youngest key that is in the way, and looks again when it is gone; so a release wakes one waiter,
// or the shared ones behind it. Deleting the key releases the lock, or leaves the queue.
//
// A free lock takes one transaction, and so does a release. A lock that is handed over takes the
// deletion, the watch's event and one read. Joining other shared holders takes one more
// transaction. Besides, a session sends one renewal every TTL/3, however many locks it holds. Each
// claim that waits reads the keys of its lock twice, and a queue of n claims costs etcd n keys per
// read; now and then it reads the one key that it waits for, in case its watch has died. One Locker
// has at most 16 creations and 16 deletions under way, so that a thousand goroutines leave room for
// its renewals.
//
// The holder counts its lease from the sending of the renewal that etcd confirmed. etcd's leader
// counts from its arrival. One that has stood still makes sure that it still leads before it
// renews; one that is cut off goes on for up to two election timeouts, but a successor, who comes
// no sooner than one, begins every lease anew and adds an election timeout. So the holder's lease
// ends first, as long as the rates of the clocks of the machines differ by less than 2 %; no times
// of different machines are compared. This is so since etcd 3.5.13 and 3.4.31.
//
// A lock that is detached gets a lease of its own, to which its key moves without losing its place;
// who attaches it renews that lease.
//
// # Invariants
//
//  1. A claim is granted at a revision at which its key is there, attached to its lease, and
//     nothing in its way is older. Nothing older can come into being later. As a lease takes its
//     keys with it in one revision, no claim of an ended session is granted.
//  2. The token of an exclusive claim is the create revision of its key, so tokens rise in the
//     order of the grants. Shared claims that hold a lock together have one token: that of the
//     first, which later ones copy into their keys while it is there. It lies between those of the
//     exclusive claims before and after.
//  3. A creation takes effect at most once, and not at all after its claim was dropped. The key
//     carries the claim's id, so a creation that is sent again finds the first one. It has the
//     session's key at a known revision as a condition; dropping a claim of whose creation no
//     answer came writes to the session's key.
//  4. Dropping a claim deletes its own key, or nothing.
//  5. A lock whose key is deleted, or whose lease is revoked, is lost at once: its holder watches
//     the key.
package etcdlock
