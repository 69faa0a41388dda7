// Package pglock makes locks of rows of a PostgreSQL table.
//
// It suits programs that have a PostgreSQL already and no wish to run another service. A lock is
// one row with a lease, and every step is one conditional statement, one round trip. No session,
// transaction or advisory lock is held while a lock is: a connection that is cut or reset costs no
// lock, a holder that dies does not keep one, and a pooler such as pgbouncer in transaction mode
// may stand between.
//
// # The protocol
//
// A row has the name, the token, and while the lock is held its owner and the time at which the
// lease ends. All times are those of the server's clock.
//
//   - Take: INSERT the row, or UPDATE it where nobody owns it or the lease has ended. The same
//     statement raises the token.
//   - Renew: UPDATE the end of the lease where the row is ours and has not ended.
//   - Release: UPDATE the owner away where the row is ours, and NOTIFY if somebody waits who
//     listens.
//
// Each statement returns the row that it changed; no row means that the condition did not hold. The
// row stays when the lock is free, for the sake of its token. The statements are in statements.go,
// the table is in schema.sql.
//
// A waiter that finds the lock held changes nothing but the column that says that somebody listens,
// four times a minute at most. It looks again after a jittered wait, 500 ms at most by default; of
// many waiters of one Locker one looks for all. Where the connections are not pooled, one more
// connection LISTENs while anybody waits, so that a release is heard of at once. The end of a dead
// holder's lease is found by looking.
//
// # What it promises
//
//  1. A row has one owner at a time, and is taken from it only after the server's clock has passed
//     the end of the lease.
//  2. The token of a name rises with each owner. It is at least one more than the last, and at
//     least the server's clock: seconds since 2025 in the upper bits, microseconds in the lower 22.
//     So it rises also when the row was deleted by hand or a backup was restored, unless the
//     server's clock was set back meanwhile.
//  3. What was granted or renewed is on disk, and on the synchronous standbys where there are some:
//     the statements raise synchronous_commit to on for themselves, whatever the database's default
//     is.
//  4. A request that certainly had no effect is told apart from one with an unknown outcome. A take
//     whose answer was lost is sent again, as it finds its own owner if it took effect; what stays
//     unknown is undone in the background. A statement that the server runs after that, because it
//     was stuck on the way, holds the lock for one TTL at most.
//
// # What it does not promise
//
//   - Order: waiters are not served first come, first served.
//   - Exclusion across the failover to an asynchronous standby, which may lack the last grants.
//     Then the token's clock keeps tokens rising as long as the clocks of the two machines agree
//     well enough, but two holders may believe in the lock for the rest of a TTL.
//   - Exclusion when the server's clock jumps ahead: leases end early by as much as it jumps. Let
//     it be slewed, not stepped.
//   - That an administrator's pg_cancel_backend of a statement that waits for a standby is
//     harmless: PostgreSQL then reports success although no standby has the grant.
//
// # The table
//
// [Migrate] or the statements of [Schema] create it; [New] does not. It keeps a row of about 150
// bytes for each name that was ever locked. Rows of free locks may be deleted where names are made
// up all the time:
//
//	DELETE FROM lockstep_locks WHERE owner IS NULL OR expires_at < now() - interval '1 day'
//
// Tokens go on rising after that, but then they rest on the server's clock alone.
//
// # The pool
//
// The pool stays the caller's: it is not closed here. Renewals need a connection every TTL/3, so a
// pool that other work can exhaust for so long loses locks: give locks a pool of their own, of 2
// connections or more. Set connect_timeout to TTL/3 or less, so that a connection attempt which
// nobody answers frees its place in the pool, and target_session_attrs=read-write where a failover
// may leave a standby behind the same address. The connection that listens is one more than the
// pool's limit. Any pool and any mode of pgx will do: the statements are never prepared.
package pglock
