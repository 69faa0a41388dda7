package pglock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
)

func TestAConfigThatBreaksARuleIsRefusedWithTheField(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), pgserver.URL("127.0.0.1:1")) // which does not connect until it has to
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, test := range []struct {
		c     pglock.Config
		field string
	}{
		{pglock.Config{TTL: time.Millisecond}, "ttl"},
		{pglock.Config{TTL: -1}, "ttl"},
		{pglock.Config{Table: "a.b.c"}, "Table"},
		{pglock.Config{Table: `locks"; DROP TABLE x; --`}, "Table"},
		{pglock.Config{Table: "1st"}, "Table"},
		{pglock.Config{Table: strings.Repeat("x", 64)}, "Table"},
		{pglock.Config{Table: "app."}, "Table"},
		{pglock.Config{PollEvery: time.Millisecond}, "PollEvery"},
		{pglock.Config{PollEvery: time.Minute}, "PollEvery"},
		{pglock.Config{UnavailableAfter: time.Hour}, "UnavailableAfter"},
		{pglock.Config{Wake: 7}, "Wake"},
	} {
		_, err := pglock.New(pool, test.c)
		if invalid, ok := errors.AsType[*lockstep.InvalidError](err); !ok || invalid.Field != test.field || invalid.Rule == "" {
			t.Errorf("%+v: %v, want an InvalidError of %s", test.c, err, test.field)
		}
	}
	if _, err := pglock.New(nil, pglock.Config{}); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("no pool: %v", err)
	}
	if err := pglock.Migrate(t.Context(), pool, "a-b"); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("migrate: %v", err)
	}
}

func TestAMissingTableSaysWhatToRun(t *testing.T) {
	s, _ := sharedServers(t)
	l := dial(t, s.Address(), pglock.Config{Table: "missing"})
	begin := time.Now()
	_, err := l.Acquire(t.Context(), "x")
	if !errors.Is(err, pglock.ErrTable) || !errors.Is(err, lockstep.ErrUnsupported) || !strings.Contains(err.Error(), "pglock.Migrate") {
		t.Errorf("acquire: %v, want ErrTable", err)
	}
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("it took %v to say so", took)
	}
	if _, err := l.Inspect(t.Context(), "x"); !errors.Is(err, pglock.ErrTable) {
		t.Errorf("inspect: %v, want ErrTable", err)
	}
	for _, err := range l.Watch(t.Context(), "x") {
		if !errors.Is(err, pglock.ErrTable) {
			t.Errorf("watch: %v, want ErrTable", err)
		}
	}
}

func TestAnyTableCanBeUsedByManyProgramsThatCreateItAtOnce(t *testing.T) {
	s, b := sharedServers(t)
	admin := openPool(t, s.Address())
	if _, err := admin.Exec(t.Context(), `CREATE SCHEMA IF NOT EXISTS app`); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"app.Locks_2", "Order"} { // the second is an SQL keyword
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if err := pglock.Migrate(t.Context(), admin, table); err != nil {
					t.Errorf("%s: %v", table, err)
				}
			})
		}
		group.Wait()
		if err := pglock.Migrate(t.Context(), openPool(t, b.Address()), table); err != nil {
			t.Errorf("%s, again and behind a pooler: %v", table, err)
		}
		other := dial(t, s.Address(), pglock.Config{})
		for _, wake := range []pglock.Wake{pglock.WakeAuto, pglock.WakeByPolling} {
			l := dial(t, s.Address(), pglock.Config{Table: table, Wake: wake})
			lock := hold(t, l, "x")
			busy(t, l, "x")
			release(t, hold(t, other, "x")) // another table, another lock
			release(t, lock)
		}
	}
}

// A user without the right to write finds out at once.
func TestAUserWithoutRightsIsToldSo(t *testing.T) {
	s, _ := sharedServers(t)
	admin := openPool(t, s.Address())
	if _, err := admin.Exec(t.Context(), "CREATE ROLE reader LOGIN; GRANT SELECT ON lockstep_locks TO reader"); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), strings.Replace(s.URL(), "postgres@", "reader@", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(context.Background())
	if _, err := l.Acquire(t.Context(), "x"); !errors.Is(err, pglock.ErrTable) {
		t.Errorf("acquire: %v, want ErrTable", err)
	}
	if _, err := l.Inspect(t.Context(), "x"); err != nil {
		t.Errorf("inspect: %v", err)
	}
}

func TestTokensStandOnTheClockAndOnTheRow(t *testing.T) {
	s, _ := sharedServers(t)
	admin, l := openPool(t, s.Address()), dial(t, s.Address(), pglock.Config{})
	lock := hold(t, l, "clock")
	now := time.Now()
	since2025 := now.Unix() - time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	seconds, micros := int64(lock.Token()>>22), int64(lock.Token()&(1<<22-1))
	if seconds < since2025-30 || seconds > since2025 || micros >= 1_000_000 {
		t.Errorf("token %d is %d s and %d µs, it is %d s", lock.Token(), seconds, micros, since2025)
	}
	release(t, lock)

	// The server's clock was an hour ahead once.
	ahead := query[int64](t, admin, "UPDATE lockstep_locks SET token = token + (3600::bigint << 22) WHERE name = 'clock' RETURNING token")
	for i := range int64(3) {
		lock := hold(t, l, "clock")
		if want := lockstep.Token(ahead + i + 1); lock.Token() != want {
			t.Errorf("token %d, want %d: one more than the last", lock.Token(), want)
		}
		release(t, lock)
	}
}

// The row says what it is for, but nothing that gives control over the lock.
func TestTheRowShowsNoSecret(t *testing.T) {
	s, _ := sharedServers(t)
	admin, l := openPool(t, s.Address()), dial(t, s.Address(), pglock.Config{})
	lock := hold(t, l, "secret")
	row := query[string](t, admin, "SELECT lockstep_locks::text FROM lockstep_locks WHERE name = 'secret'")
	handle, err := l.Detach(t.Context(), lock)
	if err != nil {
		t.Fatal(err)
	}
	if id := idOf(t, handle); strings.Contains(row, id) {
		t.Errorf("the row %s has the secret %s", row, id)
	}
	if lock, err = l.Attach(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	release(t, lock)
	if row := query[string](t, admin, "SELECT concat(owner, expires_at, granted_at, metadata) FROM lockstep_locks WHERE name = 'secret'"); row != "{}" {
		t.Errorf("the row of a free lock has %s", row)
	}
}

// Someone has written to the table by hand.
func TestStrangeMetadataDisturbsNobody(t *testing.T) {
	s, _ := sharedServers(t)
	admin, l := openPool(t, s.Address()), dial(t, s.Address(), pglock.Config{})
	lock := hold(t, l, "strange")
	query[bool](t, admin, `UPDATE lockstep_locks SET metadata = '[1, {"a": null}]' WHERE name = 'strange' RETURNING true`)
	busy(t, l, "strange")
	if state, err := l.Inspect(t.Context(), "strange"); err != nil || len(state.Holders) != 1 || state.Holders[0].Owner == "" {
		t.Errorf("inspect: %+v, %v", state, err)
	}
	release(t, lock)
}
