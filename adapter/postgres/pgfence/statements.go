package pgfence

// admit takes one step of lock $3 of backend $2 with token $4 on resource $1. It writes data if $5,
// once if $6. It returns a row if the step is admitted, and none if it is refused; either way the
// row of the mark stays locked. The conditions are those of [fence.Mark.Admit]; a test compares the
// two.
//
// The settings last until the transaction ends, so they work through poolers. The grant is for the
// trigger. The mark must survive a server crash, or an older holder would be admitted after it. $7
// is how many milliseconds the transaction may idle, unless the limit is already lower; 0 changes
// nothing.
const admit = `
WITH admitted AS (
  INSERT INTO {table} AS mark (resource, backend, lock, token, written)
  VALUES ($1::text, $2::text, $3::text, $4::bigint, CASE WHEN $5::boolean THEN $4::bigint ELSE 0 END)
  ON CONFLICT (resource) DO UPDATE SET
    token = excluded.token,
    written = CASE WHEN $5::boolean THEN excluded.token ELSE mark.written END
  WHERE mark.backend = excluded.backend AND mark.lock = excluded.lock AND mark.token <= excluded.token
    AND NOT ($6::boolean AND mark.written = excluded.token)
  RETURNING true
)
SELECT concat(
  set_config('lockstep.backend', $2::text, true),
  set_config('lockstep.lock', $3::text, true),
  set_config('lockstep.token', $4::bigint::text, true),
  set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
  CASE WHEN $7::bigint > 0 AND (
    current_setting('idle_in_transaction_session_timeout')::interval = interval '0'
    OR current_setting('idle_in_transaction_session_timeout')::interval > $7::bigint * interval '1 millisecond')
  THEN set_config('idle_in_transaction_session_timeout', $7::bigint::text, true) END
) FROM admitted`

// look reads the mark of resource $1.
const look = `SELECT backend, lock, token, written FROM {table} WHERE resource = $1::text`

// lookLocked reads the mark and locks it until the transaction ends.
const lookLocked = look + ` FOR UPDATE`

// reset gives resource $1 from lock $3 of backend $2 with tokens $4 and $5 to lock $7 of backend $6
// with token $8. It returns no row if the mark differs or does not exist.
const reset = `
UPDATE {table} SET backend = $6::text, lock = $7::text, token = $8::bigint, written = 0
WHERE resource = $1::text AND backend = $2::text AND lock = $3::text AND token = $4::bigint AND written = $5::bigint
RETURNING true`

// bind stores the mark of a resource that had none.
const bind = `
INSERT INTO {table} (resource, backend, lock, token, written) VALUES ($1::text, $2::text, $3::text, $4::bigint, 0)
ON CONFLICT DO NOTHING RETURNING true`
