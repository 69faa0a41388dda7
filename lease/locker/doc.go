// Package locker makes a [lockstep.Locker] from a store that can take a claim and end it.
//
// It is for backend authors. It implements what the contract requires of every backend: it checks
// options, bounds waits, keeps leases alive and ends them by the holder's own clock, undoes claims
// with unknown outcomes in the background, reports from a release only what is certain, and ends
// everything on Close. A backend implements only what differs: how its store takes a claim, renews
// it and ends it.
//
// There are two kinds:
//
//   - A backend of records, such as a Redis key or a Postgres row, has one lease per lock. It
//     implements [Renewer]. Its Take answers at once, and the Locker retries after a jittered wait,
//     or when its [Waker] says so.
//   - A backend of sessions, such as ZooKeeper or etcd, has one lease for all its locks. Its Take
//     waits in the store's queue and returns the session's [Lease] with the grant.
package locker
