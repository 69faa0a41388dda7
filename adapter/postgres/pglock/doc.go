// Package pglock implements locks as rows of a PostgreSQL table.
//
// It suits programs that already use PostgreSQL and do not want to run another service. A lock is
// one row with a lease, and every step is one conditional statement, one round trip. Holding a lock
// does not hold a session, transaction or advisory lock: a broken connection loses no lock, a dead
// holder does not keep one, and a pooler such as pgbouncer in transaction mode may sit in between.
//
// # The protocol
//
// A row has the name, the token and, while the lock is held, its owner and the end of the lease.
// All times come from the server's clock.
//
//   - Take: INSERT the row, or UPDATE it if no one owns it or the lease has ended. The same
//     statement raises the token.
//   - Renew: UPDATE the end of the lease if the row is ours and the lease has not ended.
//   - Release: UPDATE to clear the owner if the row is ours, and NOTIFY if a waiter is listening.
//
// Each statement returns the row that it changed; no row means that the condition did not hold.
// When the lock is free the row stays, to keep its token. The statements are in statements.go, the
// table in schema.sql.
//
// A waiter that finds the lock held changes only the column that says that someone is listening, at
// most four times a minute. It checks again after a jittered wait, at most 500 ms by default; among
// many waiters of one Locker, one checks for all. If the connections do not go through a pooler,
// one more connection LISTENs while there are waiters, so that they learn of a release at once. The
// end of a dead holder's lease is found by polling.
//
// # What it promises
//
//  1. A row has one owner at a time, and is taken from it only after the server's clock has passed
//     the end of the lease.
//  2. The token of a name rises with each owner. It is at least one more than the last, and at
//     least the server's clock: seconds since 2025 in the upper bits, microseconds in the lower 22.
//     So it also rises if the row was deleted by hand or a backup was restored, unless the server's
//     clock was set back in the meantime.
//  3. What was granted or renewed is on disk, and on the synchronous standbys, if there are any:
//     the statements raise synchronous_commit to on for themselves, whatever the database's default
//     is.
//  4. A request that certainly had no effect is distinguished from one with an unknown outcome. A
//     take whose answer was lost is sent again, since it finds its own owner if it took effect; if
//     the outcome stays unknown, the take is undone in the background. A statement that was delayed
//     and that the server runs after that holds the lock for at most one TTL.
//
// # What it does not promise
//
//   - Order: waiters are not served first come, first served.
//   - Exclusion across the failover to an asynchronous standby, which may be missing the last
//     grants. The clock part of the token then keeps tokens rising as long as the clocks of the two
//     machines agree well enough, but two holders may trust the lock for the rest of a TTL.
//   - Exclusion when the server's clock jumps ahead: leases end early by the size of the jump. Slew
//     the clock, do not step it.
//   - That an administrator's pg_cancel_backend of a statement that waits for a standby is
//     harmless: PostgreSQL then reports success although no standby has the grant.
//
// # The table
//
// [Migrate] or the statements of [Schema] create it; [New] does not. It keeps a row of about 150
// bytes for each name that was ever locked. If new names are created all the time, rows of free
// locks may be deleted:
//
//	DELETE FROM lockstep_locks WHERE owner IS NULL OR expires_at < now() - interval '1 day'
//
// Tokens keep rising after that, but then they depend only on the server's clock.
//
// # The pool
//
// The caller still owns the pool: Close does not close it. Renewals need a connection every TTL/3,
// so a pool that other work can exhaust for that long loses locks: give locks their own pool, of 2
// connections or more. Set connect_timeout to TTL/3 or less, so that an unanswered connection
// attempt frees its place in the pool, and target_session_attrs=read-write if a failover may leave
// a standby behind the same address. The listening connection comes on top of the pool's limit. Any
// pool and any pgx mode will do: the statements are never prepared.
package pglock
