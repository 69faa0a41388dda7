// Package memlock is a Locker in memory, for tests of programs that use locks.
//
// It keeps the whole contract: queues in order of arrival, shared claims,
// permits, several names, lock delay, fencing tokens, leases. So code that is
// tested with it meets what it will meet on a real backend. Nothing of it leaves the process: it
// excludes goroutines, not programs.
//
// A [Space] plays the backend. All its Lockers contend for the same names, each
// like a process of its own. [New] makes a Locker in a space of its own.
//
// # Losing a lock on purpose
//
// What a program does when its lock is gone is the part that needs tests most:
//
//   - [Locker.Cut] takes the network away: the locks are lost when the lease ends,
//     at the holder first and in the space a little later. [Locker.Heal] gives it back.
//   - [Locker.Expire] ends the session of a Locker at once.
//   - [Space.Revoke] takes a lock away as an operator does.
//   - [Space.Delete] makes the space forget a name, as a store does that evicts.
//
// The package starts no goroutine and takes all time from package time, so that
// it works inside a testing/synctest bubble, where waiting for a lease to end
// costs nothing.
package memlock
