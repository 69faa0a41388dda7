package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redlock"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // the tests are about servers that are down
	goleak.VerifyTestMain(m)
}

// masters are independent Redis servers.
type masters []*redisserver.Server

// startMasters starts servers that end with the test.
func startMasters(t testing.TB, count int, c redisserver.Config) masters {
	t.Helper()
	all := make(masters, count)
	errs := make([]error, count)
	addresses, err := testbed.Addresses(count)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range all {
		own := c
		own.Dir, own.Address = t.TempDir(), addresses[i]
		group.Go(func() { all[i], errs[i] = redisserver.Start(own) })
	}
	group.Wait()
	t.Cleanup(func() {
		for _, s := range all {
			if s != nil {
				s.Close()
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// durable starts servers that keep their data.
func durable(t testing.TB) masters {
	return startMasters(t, 5, redisserver.Config{Persistence: redisserver.AppendAlways})
}

// forgetful starts servers that lose everything when they end.
func forgetful(t testing.TB) masters {
	return startMasters(t, 5, redisserver.Config{Persistence: redisserver.Forget})
}

func (m masters) addresses() (all []string) {
	for _, s := range m {
		all = append(all, s.Address())
	}
	return all
}

func (m masters) kill(nodes ...int) {
	for _, i := range nodes {
		m[i].Kill()
	}
}

func (m masters) start(t testing.TB, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		if err := m[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// connect creates a client without the Redis Enterprise maintenance notifications.
func connect(address string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: address, DialerRetries: 1, DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// clients connects to servers until the end of the test.
func clients(t testing.TB, addresses []string) (all []*redis.Client) {
	t.Helper()
	for _, address := range addresses {
		c := connect(address)
		t.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	return all
}

// config is the configuration of most tests: short leases, but enough time for a node on a machine
// busy with other tests.
func config() redlock.Config {
	return redlock.Config{TTL: 4 * time.Second, NodeTimeout: 600 * time.Millisecond}
}

// patient is for tests that themselves keep the machine busy.
func patient() redlock.Config {
	return redlock.Config{TTL: 3 * time.Second, NodeTimeout: 500 * time.Millisecond, UnavailableAfter: 15 * time.Second}
}

// open creates a Locker over the servers that is closed when the test ends.
func (m masters) open(t testing.TB, c redlock.Config) *redlock.Locker {
	t.Helper()
	return open(t, clients(t, m.addresses()), c)
}

func open(t testing.TB, nodes []*redis.Client, c redlock.Config) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(nodes, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(l) })
	return l
}

func closeLocker(l lockstep.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	l.Close(ctx) // the servers may be gone by now
}

// acquire takes a lock within a time that is enough for a correct backend.
func acquire(t testing.TB, l lockstep.Locker, name string, opts ...lockstep.AcquireOption) lockstep.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	lock, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func release(t testing.TB, lock lockstep.Lock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := lock.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// lockKey is the key of a lock's record, as documented.
func lockKey(name string) string { return redlock.DefaultKeyPrefix + "lock:" + name }

// until waits for something that should come soon.
func until(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
