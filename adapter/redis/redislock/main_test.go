package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redislock"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ttl leaves a busy machine a second for an answer.
const ttl = 3 * time.Second

func startServer(t testing.TB, c redisserver.Config) *redisserver.Server {
	t.Helper()
	c.Dir = t.TempDir()
	s, err := redisserver.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// connect returns a client that is closed at the end of the test.
func connect(t testing.TB, address string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// open returns a Locker that is closed at the end of the test.
func open(t testing.TB, rdb redis.UniversalClient, cfg redislock.Config) *redislock.Locker {
	t.Helper()
	if cfg.TTL == 0 {
		cfg.TTL = ttl
	}
	l, err := redislock.New(rdb, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Logf("close: %v", err)
		}
	})
	return l
}

// openOn returns a Locker with its own client.
func openOn(t testing.TB, s *redisserver.Server) *redislock.Locker {
	t.Helper()
	return open(t, connect(t, s.Address()), redislock.Config{})
}

func acquire(t testing.TB, l lockstep.Locker, name string, opts ...lockstep.AcquireOption) lockstep.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	k, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func release(t testing.TB, k lockstep.Lock) {
	t.Helper()
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lost waits until the lock is over and checks that it was lost for one of the reasons.
func lost(t *testing.T, k lockstep.Lock, reasons ...lockstep.LossReason) {
	t.Helper()
	select {
	case <-k.Context().Done():
	case <-time.After(ttl + 5*time.Second):
		t.Fatalf("%s is not lost", k.Name())
	}
	loss, ok := errors.AsType[*lockstep.LossError](context.Cause(k.Context()))
	if !ok {
		t.Fatalf("the cause is %v, want a loss", context.Cause(k.Context()))
	}
	for _, r := range reasons {
		if loss.Reason == r {
			return
		}
	}
	t.Errorf("lost because of %v, want one of %v", loss.Reason, reasons)
}

// expectBusy checks that the lock is not available.
func expectBusy(t *testing.T, l lockstep.Locker, name string) {
	t.Helper()
	k, err := lockstep.TryAcquire(t.Context(), l, name)
	if err == nil {
		t.Errorf("%s was granted with token %d, want busy", name, k.Token())
		return
	}
	if !errors.Is(err, lockstep.ErrBusy) {
		t.Errorf("try: %v, want ErrBusy", err)
	}
}

// A wired is a Locker with its own client and proxy, which end with it.
type wired struct {
	*redislock.Locker
	rdb   *redis.Client
	proxy *testbed.Proxy
}

func wire(t *testing.T, address string) wired {
	t.Helper()
	p, err := testbed.NewProxy(address)
	if err != nil {
		t.Fatal(err)
	}
	w := wired{rdb: redis.NewClient(&redis.Options{Addr: p.Address()}), proxy: p}
	t.Cleanup(func() { w.Close(context.Background()) })
	if w.Locker, err = redislock.New(w.rdb, redislock.Config{TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w wired) Close(ctx context.Context) error {
	defer w.proxy.Close()
	defer w.rdb.Close()
	return w.Locker.Close(ctx)
}
