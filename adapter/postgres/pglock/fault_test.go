package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
)

// terminate ends all sessions but its own, as an administrator does.
func terminate(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return query[int](t, pool, `SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
}

// A lock is a row, not a session: it does not share the fate of connections.
func TestALockOutlivesItsConnections(t *testing.T) {
	s, _ := sharedServers(t)
	admin := openPool(t, s.Address())
	t.Run("terminated by an administrator", func(t *testing.T) {
		outlive(t, s, func(*client) { terminate(t, admin) })
	})
	t.Run("reset on the way", func(t *testing.T) {
		outlive(t, s, func(k *client) { k.proxy.Break() })
	})
	t.Run("ended because they were idle", func(t *testing.T) {
		configure(t, admin, "idle_session_timeout", "200ms")
		outlive(t, s, func(*client) {}) // the server does it
	})
}

// outlive holds a lock for more than a TTL, disturbing its connections repeatedly.
func outlive(t *testing.T, s *pgserver.Server, hurt func(*client)) {
	t.Helper()
	a, b := dial(t, s.Address(), pglock.Config{}), dial(t, s.Address(), pglock.Config{})
	name := t.Name()
	lock := hold(t, a, name)
	for end := time.Now().Add(3 * ttl / 2); time.Now().Before(end); time.Sleep(ttl / 6) {
		hurt(a)
		if err := lock.Check(); err != nil {
			t.Fatalf("the lock is lost: %v", err)
		}
	}
	until(t, ttl, "the other sees the lock held", func() bool {
		state, err := b.Inspect(t.Context(), name)
		return err == nil && len(state.Holders) == 1 && state.Holders[0].Token == lock.Token()
	})
	release(t, lock)
	release(t, hold(t, b, name))
}

// configure changes a setting of the server until the end of the test.
func configure(t *testing.T, admin *pgxpool.Pool, setting, value string) {
	t.Helper()
	change := func(sql string) {
		// The setting may affect these connections too.
		until(t, 10*time.Second, sql, func() bool {
			_, first := admin.Exec(context.Background(), sql)
			_, second := admin.Exec(context.Background(), "SELECT pg_reload_conf()")
			return first == nil && second == nil
		})
		admin.Reset()
	}
	change("ALTER SYSTEM SET " + setting + " = '" + value + "'")
	t.Cleanup(func() { change("ALTER SYSTEM RESET " + setting) })
}

// ends are the ways in which a server goes away.
var ends = map[string]func(*pgserver.Server) error{
	"fast":      func(s *pgserver.Server) error { return s.Stop(pgserver.Fast) },
	"immediate": func(s *pgserver.Server) error { return s.Stop(pgserver.Immediate) },
	"killed":    func(s *pgserver.Server) error { s.Kill(); return nil },
}

func TestAServerThatComesBackInTimeLosesNoLock(t *testing.T) {
	s, b := sharedServers(t)
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			// The TTL is longer than any restart, even on a busy machine.
			long := pglock.Config{TTL: 30 * time.Second}
			holder, waiter := dial(t, b.Address(), long), dial(t, s.Address(), long)
			lock := hold(t, holder, name)
			next := make(chan lockstep.Lock, 1)
			go func() {
				k, err := waiter.Acquire(context.Background(), name)
				if err != nil {
					t.Error(err)
				}
				next <- k
			}()
			if err := end(s); err != nil {
				t.Fatal(err)
			}
			b.Kill() // the pooler goes too
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			if err := b.Start(); err != nil {
				t.Fatal(err)
			}
			if err := lock.Check(); err != nil {
				t.Errorf("the lock is lost: %v", err)
			}
			if left := query[float64](t, waiter.pool, "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM lockstep_locks WHERE name = $1", name); left <= 0 {
				t.Errorf("%v s are left of the lease", left)
			}
			release(t, lock)
			after := <-next
			if after == nil {
				return
			}
			if after.Token() <= lock.Token() {
				t.Errorf("token %d after %d", after.Token(), lock.Token())
			}
			release(t, after)
		})
	}
}

func TestAServerThatStaysAwayEndsTheLockAtItsHolderFirst(t *testing.T) {
	s, _ := sharedServers(t)
	a, b := dial(t, s.Address(), pglock.Config{}), dial(t, s.Address(), pglock.Config{})
	lock := hold(t, a, "stays away")
	if err := s.Stop(pgserver.Immediate); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	select {
	case <-lock.Context().Done():
	case <-time.After(ttl + 5*time.Second):
		t.Fatal("the holder was not told")
	}
	loss, ok := errors.AsType[*lockstep.LossError](context.Cause(lock.Context()))
	if !ok || loss.Reason != lockstep.LeaseEnded {
		t.Errorf("cause %v, want the end of the lease", context.Cause(lock.Context()))
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if left := ttl - time.Since(stopped); left > 0 {
		time.Sleep(left)
	}
	after := hold(t, b, "stays away")
	if after.Token() <= lock.Token() {
		t.Errorf("token %d after %d", after.Token(), lock.Token())
	}
	if err := lock.Release(t.Context()); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("release of the lost lock: %v, want ErrLost", err)
	}
	release(t, after)
}

// The database commits without waiting for the disk, and writes its log so late that a crash loses
// the last changes of other programs. Locks are not lost.
func TestACrashLosesNoGrantWhateverTheDatabasesDefault(t *testing.T) {
	s := startServer(t, map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s"})
	admin := openPool(t, s.Address())
	if _, err := admin.Exec(t.Context(), "BEGIN; SET LOCAL synchronous_commit = on; CREATE TABLE others AS SELECT 0 AS n; COMMIT"); err != nil {
		t.Fatal(err)
	}
	l := dial(t, s.Address(), pglock.Config{TTL: lockstep.MaxTTL})
	lock := hold(t, l, "x")
	crash(t, s, admin)
	row := query[string](t, admin, "SELECT token || ' ' || owner FROM lockstep_locks WHERE name = 'x'")
	state, err := l.Inspect(t.Context(), "x")
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Token != lock.Token() {
		t.Errorf("after the crash: %+v, %v, row %s, want token %d", state, err, row, lock.Token())
	}

	handle, err := l.Detach(t.Context(), lock)
	if err != nil {
		t.Fatal(err)
	}
	before := query[time.Time](t, admin, "SELECT expires_at FROM lockstep_locks")
	if lock, err = l.Attach(t.Context(), handle); err != nil { // which renews
		t.Fatal(err)
	}
	crash(t, s, admin)
	if after := query[time.Time](t, admin, "SELECT expires_at FROM lockstep_locks"); !after.After(before) {
		t.Errorf("the renewal is forgotten: the lease ends at %v, before it was %v", after, before)
	}

	release(t, lock)
	crash(t, s, admin)
	if owned := query[bool](t, admin, "SELECT owner IS NOT NULL FROM lockstep_locks"); owned {
		t.Error("the release is forgotten")
	}
}

// crash kills and starts the server, and checks that it lost what was not on disk.
func crash(t *testing.T, s *pgserver.Server, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "INSERT INTO others VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, 10*time.Second, "the pool is connected again", func() bool { return pool.Ping(t.Context()) == nil })
	if n := query[int](t, pool, "SELECT count(*)::int FROM others"); n != 1 {
		t.Fatalf("%d rows: the crash lost nothing, so it proves nothing", n)
	}
}

// Someone locks a row in a transaction and goes for a coffee.
func TestALockedRowDelaysAndLosesNothing(t *testing.T) {
	s, _ := sharedServers(t)
	admin, l := openPool(t, s.Address()), dial(t, s.Address(), pglock.Config{})
	lock := hold(t, l, "held")
	release(t, hold(t, l, "free"))
	tx, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT * FROM lockstep_locks FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := lockstep.TryAcquire(t.Context(), l, "free"); !errors.Is(err, lockstep.ErrUnavailable) || !lockstep.SafeToRetry(err) {
		t.Errorf("try of a lock whose row is locked: %v, want ErrUnavailable", err)
	}
	time.Sleep(ttl / 3) // a renewal has failed by now
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(ttl)
	if err := lock.Check(); err != nil {
		t.Errorf("the lock is lost: %v", err)
	}
	release(t, lock)
	release(t, hold(t, l, "free"))
}
