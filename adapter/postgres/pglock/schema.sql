-- The table of the locks. Run this once, by pglock.Migrate or with the migrations of the program that uses it. It may be run again.

-- Two programs that start at the same moment do not disturb each other.
SELECT pg_advisory_xact_lock(6074866316229009741);

CREATE TABLE IF NOT EXISTS {table} (
    -- Compared byte for byte: letters of two cases or scripts make two names.
    name       text COLLATE "C" PRIMARY KEY,
    -- The token of the last holder. It only rises, which is why the row stays when the lock is free.
    token      bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    -- The public identity of the holder; null while the lock is free. It is made from a secret that only the holder has.
    owner      text,
    -- When the lease ends and when it was granted, on this server's clock.
    expires_at timestamptz,
    granted_at timestamptz,
    -- What the holder tells about itself: an object of strings.
    metadata   jsonb NOT NULL DEFAULT '{}',
    -- Until when somebody may wait who wants to be notified of the release.
    awaited_until timestamptz,
    CHECK ((owner IS NULL) = (expires_at IS NULL))
) WITH (
    -- Rows are updated all the time and never in a column with an index: room on the page keeps updates there.
    fillfactor = 50
);
