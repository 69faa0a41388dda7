package pglock

import "strings"

// statements holds the statements for one table. Each runs in its own transaction.
type statements struct{ take, renew, drop, inspect string }

func newStatements(quotedTable string) statements {
	fill := strings.NewReplacer("{settings}", settings, "{floor}", floor, "{table}", quotedTable).Replace
	return statements{take: fill(take), renew: fill(renew), drop: fill(drop), inspect: fill(inspect)}
}

// settings apply to the transaction of the statement that they are part of, so they work through
// poolers.
//
// If the server lost a grant or renewal in a crash, it would admit another holder while the first
// still trusts it. So the commit waits for the disk, and for synchronous standbys if there are any,
// even if the database's default is off.
//
// An open transaction may have locked the row. No statement waits for it longer than $1, since a
// statement that continues after its sender has given up could take a lock for no one.
const settings = `set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) AS durable,
     set_config('lock_timeout', $1, true) AS patience`

// floor is the smallest token that the clock allows: seconds since the start of 2025 in the upper
// bits, and the microseconds of the second in the lower 22, which hold 4 million. In 2093 it will
// exceed lockstep.MaxToken.
const floor = `greatest(1, ((floor(extract(epoch FROM clock.now))::bigint - 1735689600) << 22) + extract(microseconds FROM clock.now)::bigint % 1000000)`

// take grants the lock $2 to owner $3 for $4 microseconds, with metadata $5. It returns the grant,
// or the holder in the way, or no row if a holder came or left while it ran.
//
// Reading first avoids writes by waiters: an INSERT locks the row that it conflicts with, which is
// a write even if it then changes nothing. The row may change between the read and the INSERT, so
// the condition appears again; there the row is locked and its newest version is seen.
//
// A waiter that wants to be notified of a release during the next $6 microseconds says so in the
// row, and again in the second half of that time. If the row is currently locked, this is left to
// the next read.
const take = `
WITH holder AS (
  SELECT token, owner, granted_at, metadata FROM {table}
  WHERE name = $2 AND owner IS NOT NULL AND expires_at > clock_timestamp()
), granted AS (
  INSERT INTO {table} AS lock (name, token, owner, expires_at, granted_at, metadata)
  SELECT $2, {floor}, $3, clock.now + $4::bigint * interval '1 microsecond', clock.now, $5::text::jsonb
  FROM (SELECT clock_timestamp() AS now) AS clock,
     {settings}
  WHERE NOT EXISTS (SELECT FROM holder)
  ON CONFLICT (name) DO UPDATE SET
    token = greatest(lock.token + 1, excluded.token),
    owner = excluded.owner,
    expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond',
    granted_at = clock_timestamp(),
    metadata = excluded.metadata
  WHERE lock.owner IS NULL OR lock.expires_at <= clock_timestamp()
  RETURNING token, owner, granted_at, metadata
), awaited AS (
  UPDATE {table} SET awaited_until = clock_timestamp() + $6::bigint * interval '1 microsecond'
  WHERE $6::bigint > 0 AND EXISTS (SELECT FROM holder) AND name IN (
    SELECT name FROM {table}
    WHERE name = $2 AND coalesce(awaited_until < clock_timestamp() + $6::bigint * interval '0.5 microsecond', true)
    FOR UPDATE SKIP LOCKED
  )
)
SELECT true, token, owner, granted_at, metadata::text FROM granted
UNION ALL
SELECT false, token, owner, granted_at, metadata::text FROM holder`

// renew makes the lock $2 of owner $3 last $4 microseconds from now. A lease that has ended is not
// revived.
const renew = `
UPDATE {table} SET expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
FROM {settings}
WHERE name = $2 AND owner = $3 AND expires_at > clock_timestamp()
RETURNING true`

// drop frees the lock $2 of owner $3 and keeps the row for its token. If a waiter wants to be
// notified, it sends payload $5 on channel $4 when it commits. It does not always notify, because
// PostgreSQL commits transactions that notify one at a time, across all databases of a server, and
// each waits for the disk. 16 clients with a lock each took four times as long with a notification
// in each release (BenchmarkManyFree).
const drop = `
WITH freed AS (
  UPDATE {table} SET owner = NULL, expires_at = NULL, granted_at = NULL, metadata = '{}'
  FROM {settings}
  WHERE name = $2 AND owner = $3
  RETURNING awaited_until > clock_timestamp() AS awaited
)
SELECT CASE WHEN awaited THEN pg_notify($4, $5) IS NOT NULL ELSE true END FROM freed`

// inspect reads the lock $1.
const inspect = `
SELECT owner IS NOT NULL AND expires_at > clock_timestamp(), token, coalesce(owner, ''), granted_at, metadata::text
FROM {table} WHERE name = $1`
