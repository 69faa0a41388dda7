// Package memlock is a Locker in memory, for tests of programs that use locks.
//
// It implements the whole contract: queues in order of arrival, shared claims, permits, several
// names, lock delay, fencing tokens, leases. So code tested with it sees what it will see on a real
// backend. It works within one process: it excludes goroutines, not programs.
//
// A [Space] stands for the backend. All its Lockers contend for the same names, each like a
// separate process. [New] creates a Locker in its own space.
//
// # Losing a lock on purpose
//
// Losing a lock is what a program most needs to test:
//
//   - [Locker.Cut] disconnects a Locker: its locks are lost when the lease ends, first at the
//     holder and a little later in the space. [Locker.Heal] reconnects it.
//   - [Locker.Expire] ends the session of a Locker at once.
//   - [Space.Revoke] takes a lock away as an operator does.
//   - [Space.Delete] makes the space forget a name, as when a store evicts it.
//
// The package starts no goroutine and uses only package time, so it works inside a testing/synctest
// bubble, where waiting for a lease to end costs nothing.
package memlock
