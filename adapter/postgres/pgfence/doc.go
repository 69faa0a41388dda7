// Package pgfence guards data in PostgreSQL: a write that carries an older fencing token than one
// seen before is refused.
//
// A table has one row for each guarded resource, with its mark. There are two ways to ask it, which
// work together:
//
//   - A [Guard] takes a step inside the caller's own transaction, of pgx or of database/sql, before
//     the reads and writes that it covers.
//   - A trigger, made by [Protect], checks each statement that writes to a table, whichever program
//     and language it comes from, psql too.
//
// # Rules
//
//  1. A step locks the row of the mark until the transaction ends. So steps at one resource happen
//     one after the other, and the mark changes together with the data or not at all.
//  2. Under READ COMMITTED, the default, a step comes before the statements that it covers, so that
//     they see what the step has waited for. Under REPEATABLE READ and SERIALIZABLE a step that
//     another overtook fails with SQLSTATE 40001, as any write does: roll back and try the whole
//     transaction again.
//  3. A transaction with a step waits for the disk, and for synchronous standbys, when it commits,
//     whatever synchronous_commit is.
//  4. Deleting data keeps the mark. Who may write should have no right to DELETE from the table of
//     the marks.
//
// # Writers in other languages
//
// They say in the transaction what they hold:
//
//	BEGIN;
//	SET LOCAL lockstep.backend = 'native:prod';  -- as fence.Source.Backend has it
//	SET LOCAL lockstep.lock = 'billing';
//	SET LOCAL lockstep.token = '42';
//	UPDATE invoices SET ... ;
//	COMMIT;
//
// The trigger compares with the row of the mark, and raises it. A write without a token is refused.
// To enter before the first read, run a write that meets no row: UPDATE invoices SET id = id WHERE
// false. Use SET LOCAL and never SET, whose token would stay in the session for whoever gets that
// from a pool next. The SQLSTATE of a refusal is [CodeStale], [CodeForeign], [CodeNoToken] or
// [CodeInvalid]; [Verdict] turns it into the errors of package fence. After a Guard's step the
// settings are in place.
//
// A transaction that writes to tables of two locks takes the step of each before its writes: the
// settings are those of the last. Take the steps of several resources in the same order everywhere,
// or PostgreSQL ends one of two transactions as a deadlock, SQLSTATE 40P01.
//
// # A holder that freezes in a transaction
//
// It keeps the mark locked, and the next holder cannot enter until the server ends that session. So
// a Guard sets idle_in_transaction_session_timeout for the transaction: see [Config].MaxIdle, which
// should be at most the TTL of the lock. For writers in other languages set it for their role:
// ALTER ROLE ... SET idle_in_transaction_session_timeout = '10s'. A client that is cut off in the
// middle of a statement is found out by tcp_keepalives_idle or client_connection_check_interval.
//
// # What it costs
//
// An admitted step is one round trip more in the transaction, a refused one two. [Marks], which has
// no transaction around it, is one round trip in all. A step writes one row of about 150 bytes,
// without touching an index; the commit is the caller's own. The trigger adds no round trip: for
// each statement, not for each row, it locks the row of the mark, and writes it when the token is a
// new one.
//
// Everything is bound to the transaction: no session state, advisory lock, prepared statement or
// LISTEN. It works through pgbouncer in transaction mode.
//
// # What it cannot do
//
//   - The trigger protects a whole table as one resource. Rows under locks of their own need a
//     Guard.
//   - It does not authenticate: whoever may write may invent a token.
//   - Triggers do not run for ALTER TABLE and DROP TABLE, under session_replication_role = replica,
//     so in logical replication, nor for writes that go to a partition of the table directly:
//     protect each partition. Owners of the table can drop the trigger.
//   - Writers of one resource take turns for the length of their transactions. Shared locks gain
//     nothing on it.
//   - A failover to an asynchronous standby, or restoring a backup, can forget the last steps; the
//     data forget the same.
//   - An Observer is told before the commit, and not of what the trigger does.
package pgfence
