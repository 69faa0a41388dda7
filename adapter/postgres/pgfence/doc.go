// Package pgfence guards data in PostgreSQL: a write whose fencing token is older than one seen
// before is refused.
//
// A table has one row for each guarded resource, with its mark. There are two ways to use it, which
// work together:
//
//   - A [Guard] takes a step inside the caller's own transaction, of pgx or of database/sql, before
//     the reads and writes that it covers.
//   - A trigger, created by [Protect], checks each statement that writes to a table, whatever
//     program or language it comes from, including psql.
//
// # Rules
//
//  1. A step locks the row of the mark until the transaction ends. So steps on one resource happen
//     one after the other, and the mark changes together with the data or not at all.
//  2. Under READ COMMITTED, the default, a step comes before the statements that it covers, so that
//     they see the changes that the step waited for. Under REPEATABLE READ and SERIALIZABLE a step
//     that was overtaken by another fails with SQLSTATE 40001, as any write does: roll back and
//     retry the whole transaction.
//  3. A transaction with a step waits for the disk, and for synchronous standbys, when it commits,
//     whatever synchronous_commit is.
//  4. Deleting data keeps the mark. Writers should not have the right to DELETE from the marks
//     table.
//
// # Writers in other languages
//
// They declare in the transaction what they hold:
//
//	BEGIN;
//	SET LOCAL lockstep.backend = 'native:prod';  -- the value of fence.Source.Backend
//	SET LOCAL lockstep.lock = 'billing';
//	SET LOCAL lockstep.token = '42';
//	UPDATE invoices SET ... ;
//	COMMIT;
//
// The trigger compares this with the row of the mark, and raises the mark. A write without a token
// is refused. To enter before the first read, run a write that affects no row: UPDATE invoices SET
// id = id WHERE false. Use SET LOCAL, never SET: with SET the token would stay in the session for
// the next client that gets it from a pool. The SQLSTATE of a refusal is [CodeStale],
// [CodeForeign], [CodeNoToken] or [CodeInvalid]; [Verdict] turns it into the errors of package
// fence. A Guard's step makes these settings itself.
//
// A transaction that writes to tables of two locks takes the step of each before its writes: the
// settings are those of the last step. Take the steps of several resources in the same order
// everywhere, or PostgreSQL ends one of two transactions as a deadlock, SQLSTATE 40P01.
//
// # A holder that freezes in a transaction
//
// Such a holder keeps the mark locked, and the next holder cannot enter until the server ends that
// session. So a Guard sets idle_in_transaction_session_timeout for the transaction: see
// [Config].MaxIdle, which should be at most the TTL of the lock. For writers in other languages,
// set it on their role: ALTER ROLE ... SET idle_in_transaction_session_timeout = '10s'.
// tcp_keepalives_idle or client_connection_check_interval detects a client that is cut off in the
// middle of a statement.
//
// # What it costs
//
// An admitted step adds one round trip to the transaction, a refused one two. A step of [Marks],
// which has no surrounding transaction, is one round trip in total. A step writes one row of about
// 150 bytes, without touching an index; the commit is the caller's. The trigger adds no round trip:
// once per statement, not per row, it locks the row of the mark, and writes it if the token is new.
//
// Everything is scoped to the transaction: there is no session state, advisory lock, prepared
// statement or LISTEN. It works through pgbouncer in transaction mode.
//
// # What it cannot do
//
//   - The trigger protects a whole table as one resource. Rows with their own locks need a Guard.
//   - It does not authenticate: anyone who may write may invent a token.
//   - Triggers do not run for ALTER TABLE and DROP TABLE, under session_replication_role = replica
//     (and so in logical replication), or for direct writes to a partition or to a table that
//     inherits from the table: protect each of those. The owner of the table can drop the trigger.
//   - Writers of one resource take turns for the length of their transactions. Shared locks gain
//     nothing from it.
//   - A failover to an asynchronous standby, or restoring a backup, can lose the last steps; the
//     data loses the same changes.
//   - An Observer is notified before the commit, and not about the trigger's decisions.
package pgfence
