// Package locker makes a [lockstep.Locker] of a store that can take a claim and end it.
//
// It is for the authors of backends. What the contract asks of every backend alike is here: options
// are checked, waits are bounded, a lease is kept alive and ends by the holder's own clock, what
// has an unknown outcome is undone in the background, a release says what is certain, and Close
// ends everything. A backend is left with what differs: how its store takes a claim, renews it and
// ends it.
//
// There are two kinds:
//
//   - A backend of records, such as a Redis key or a Postgres row, has a lease for each lock. It
//     implements [Renewer]. Its Take answers at once, and the Locker asks again after a jittered
//     wait, or when its [Waker] says so.
//   - A backend of sessions, such as ZooKeeper or etcd, has one lease for all its locks. Its Take
//     waits in the store's queue and gives the session's [Lease] with the grant.
package locker
