-- The marks of guarded resources, and the trigger function that checks writers of protected tables. Run this once, by pgfence.Migrate or
-- with the migrations of the program that uses it. It may be run again. It needs PostgreSQL 14 or later.

-- Two programs that start at the same moment do not disturb each other.
SELECT pg_advisory_xact_lock(6074866316229009742);

CREATE TABLE IF NOT EXISTS {table} (
    -- What is guarded. Compared byte for byte. The row is never deleted: that would let an older holder in.
    resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 1024),
    -- The backend and the lock that the resource belongs to.
    backend  text COLLATE "C" NOT NULL CHECK (octet_length(backend) BETWEEN 1 AND 128),
    lock     text COLLATE "C" NOT NULL CHECK (octet_length(lock) BETWEEN 1 AND 512),
    -- The highest token seen.
    token    bigint NOT NULL CHECK (token BETWEEN 0 AND 9007199254740991),
    -- The token of the last write; 0: none.
    written  bigint NOT NULL CHECK (written BETWEEN 0 AND token)
) WITH (
    -- Rows are updated all the time and never in a column with an index: room on the page keeps updates there.
    fillfactor = 50
);

-- Checks one statement that writes to a protected table. The writer has said in its transaction which lock it holds:
--
--   SET LOCAL lockstep.backend = 'native:prod';
--   SET LOCAL lockstep.lock = 'billing';
--   SET LOCAL lockstep.token = '42';
--
-- The argument of the trigger is the resource. The function has the rights of its owner: writers need none on the marks.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $check$
DECLARE
    -- What an earlier transaction of the session said with SET LOCAL now reads ''.
    said_backend text := coalesce(current_setting('lockstep.backend', true), '');
    said_lock    text := coalesce(current_setting('lockstep.lock', true), '');
    said_token   text := coalesce(current_setting('lockstep.token', true), '');
    number       bigint;
    seen         record;
BEGIN
    IF said_token IN ('', '0') THEN
        RAISE EXCEPTION 'lockstep: no fencing token: table % is written only by the holder of a lock', TG_TABLE_NAME
            USING ERRCODE = 'LKS03', HINT = 'Say SET LOCAL lockstep.backend, lockstep.lock and lockstep.token in the transaction.';
    END IF;
    IF said_token !~ '^[1-9][0-9]{0,15}$' OR said_backend = '' OR said_lock = '' THEN
        RAISE EXCEPTION 'lockstep: lockstep.token must be 1 to 9007199254740991, lockstep.backend and lockstep.lock must not be empty'
            USING ERRCODE = 'LKS04';
    END IF;
    number := said_token::bigint;
    IF number > 9007199254740991 THEN
        RAISE EXCEPTION 'lockstep: lockstep.token must be 1 to 9007199254740991' USING ERRCODE = 'LKS04';
    END IF;

    -- A write that a crash of the server forgets would let an older holder in.
    IF current_setting('synchronous_commit') <> 'remote_apply' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    -- The mark often has the token already. Locking it is then enough; it waits for whoever is in the middle of a step.
    PERFORM FROM {table} AS mark
        WHERE mark.resource = TG_ARGV[0] AND mark.backend = said_backend AND mark.lock = said_lock
            AND mark.token = number AND mark.written = number
        FOR UPDATE;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO {table} AS mark (resource, backend, lock, token, written)
        VALUES (TG_ARGV[0], said_backend, said_lock, number, number)
        ON CONFLICT (resource) DO UPDATE SET token = excluded.token, written = excluded.written
        WHERE mark.backend = excluded.backend AND mark.lock = excluded.lock AND mark.token <= excluded.token;
    IF FOUND THEN
        RETURN NULL;
    END IF;

    SELECT mark.backend, mark.lock, mark.token::text, mark.written::text INTO STRICT seen FROM {table} AS mark WHERE mark.resource = TG_ARGV[0];
    IF seen.backend <> said_backend OR seen.lock <> said_lock THEN
        RAISE EXCEPTION 'lockstep: % belongs to lock % of %, not to % of %', TG_ARGV[0], seen.lock, seen.backend, said_lock, said_backend
            USING ERRCODE = 'LKS02', DETAIL = row_to_json(seen)::text;
    END IF;
    RAISE EXCEPTION 'lockstep: stale token % of lock %: % has seen %', number, said_lock, TG_ARGV[0], seen.token
        USING ERRCODE = 'LKS01', DETAIL = row_to_json(seen)::text,
            HINT = 'A later holder of the lock is at work. Stop, and do not retry with this token.';
END
$check$;
