package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

// A tampered Locker is an in-memory Locker with a planted fault. It has no optional interfaces.
type tampered struct {
	lockstep.Locker
	caps    func(*lockstep.Capabilities)
	acquire func(ctx context.Context, l lockstep.Locker, name string, opts []lockstep.AcquireOption) (lockstep.Lock, error)
	close   func(ctx context.Context, l lockstep.Locker) error
}

func (l *tampered) Capabilities() lockstep.Capabilities {
	caps := l.Locker.Capabilities()
	if l.caps != nil {
		l.caps(&caps)
	}
	return caps
}

func (l *tampered) Acquire(ctx context.Context, name string, opts ...lockstep.AcquireOption) (lockstep.Lock, error) {
	if l.acquire == nil {
		return l.Locker.Acquire(ctx, name, opts...)
	}
	return l.acquire(ctx, l.Locker, name, opts)
}

func (l *tampered) Close(ctx context.Context) error {
	if l.close == nil {
		return l.Locker.Close(ctx)
	}
	return l.close(ctx, l.Locker)
}

// A tamperedLock overrides the methods it has a function for.
type tamperedLock struct {
	lockstep.Lock
	name    string
	token   func() lockstep.Token
	ctx     context.Context
	check   func() error
	release func(context.Context) error
}

func (k *tamperedLock) Name() string {
	if k.name != "" {
		return k.name
	}
	return k.Lock.Name()
}

func (k *tamperedLock) Token() lockstep.Token {
	if k.token != nil {
		return k.token()
	}
	return k.Lock.Token()
}

func (k *tamperedLock) Context() context.Context {
	if k.ctx != nil {
		return k.ctx
	}
	return k.Lock.Context()
}

func (k *tamperedLock) Check() error {
	if k.check != nil {
		return k.check()
	}
	return k.Lock.Check()
}

func (k *tamperedLock) Release(ctx context.Context) error {
	if k.release != nil {
		return k.release(ctx)
	}
	return k.Lock.Release(ctx)
}

// onLock tampers with each lock that is handed out.
func onLock(plant func(*tamperedLock)) func(context.Context, lockstep.Locker, string, []lockstep.AcquireOption) (lockstep.Lock, error) {
	return func(ctx context.Context, l lockstep.Locker, name string, opts []lockstep.AcquireOption) (lockstep.Lock, error) {
		lock, err := l.Acquire(ctx, name, opts...)
		if err != nil {
			return nil, err
		}
		k := &tamperedLock{Lock: lock}
		plant(k)
		return k, nil
	}
}

// plants are bad backends, each with a check that must fail on it.
var plants = []struct {
	name   string
	caught string
	plant  func(space *memlock.Space, l *tampered)
}{
	{"no exclusion", "holders exclude each other", func(_ *memlock.Space, l *tampered) {
		var n atomic.Int64
		l.acquire = func(ctx context.Context, l lockstep.Locker, name string, opts []lockstep.AcquireOption) (lockstep.Lock, error) {
			lock, err := l.Acquire(ctx, fmt.Sprintf("%s-%d", name, n.Add(1)), opts...)
			if err != nil {
				return nil, err
			}
			return &tamperedLock{Lock: lock, name: name}, nil
		}
	}},
	{"no exclusion between goroutines of one locker", "goroutines that share a locker exclude each other", func(space *memlock.Space, l *tampered) {
		l.acquire = func(ctx context.Context, l lockstep.Locker, name string, opts []lockstep.AcquireOption) (lockstep.Lock, error) {
			lock, err := l.Acquire(ctx, name, append(opts, lockstep.WithShared())...)
			return lock, err
		}
	}},
	{"late loss", "a holder that is cut off knows before the next is granted", func(space *memlock.Space, l *tampered) {
		l.acquire = onLock(func(k *tamperedLock) {
			late, cancel := context.WithCancelCause(context.Background())
			context.AfterFunc(k.Lock.Context(), func() {
				time.AfterFunc(time.Second, func() { cancel(context.Cause(k.Lock.Context())) })
			})
			k.ctx, k.check = late, func() error { return context.Cause(late) }
		})
	}},
	{"loss that only the context tells", "a holder that is cut off knows before the next is granted", func(space *memlock.Space, l *tampered) {
		l.acquire = onLock(func(k *tamperedLock) { k.check = func() error { return nil } })
	}},
	{"token going back", "tokens rise from holder to holder", func(space *memlock.Space, l *tampered) {
		l.acquire = onLock(func(k *tamperedLock) {
			k.token = func() lockstep.Token { return 1<<20 - k.Lock.Token() }
		})
	}},
	{"token that starts again after deletion", "a deleted record is a loss and tokens go on rising", func(space *memlock.Space, l *tampered) {
		l.acquire = onLock(func(k *tamperedLock) { k.token = func() lockstep.Token { return 1 } })
	}},
	{"release of another's lock", "a second release touches nobody else's lock", func(space *memlock.Space, l *tampered) {
		l.acquire = onLock(func(k *tamperedLock) {
			k.release = func(ctx context.Context) error {
				if k.Lock.Check() != nil {
					space.Delete(k.Name()) // like a DEL without a comparison
					return nil
				}
				return k.Lock.Release(ctx)
			}
		})
	}},
	{"late release of another's lock", "a late release touches nobody else's lock", func(space *memlock.Space, l *tampered) {
		l.acquire = onLock(func(k *tamperedLock) {
			k.release = func(ctx context.Context) error {
				space.Delete(k.Name())
				return k.Lock.Release(ctx)
			}
		})
	}},
	{"release that needs a live context", "a release works on a dead context", func(_ *memlock.Space, l *tampered) {
		l.acquire = onLock(func(k *tamperedLock) {
			k.release = func(ctx context.Context) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return k.Lock.Release(ctx)
			}
		})
	}},
	{"ghost of a cancelled waiter", "a cancel that meets a grant leaves no ghost", func(_ *memlock.Space, l *tampered) {
		l.acquire = func(ctx context.Context, l lockstep.Locker, name string, opts []lockstep.AcquireOption) (lockstep.Lock, error) {
			lock, err := l.Acquire(context.WithoutCancel(ctx), name, opts...)
			if err == nil && ctx.Err() != nil {
				return nil, ctx.Err() // and forgets the lock
			}
			return lock, err
		}
	}},
	{"grant forgotten when the context ends with it", "a cancel that meets a grant leaves no ghost", func(_ *memlock.Space, l *tampered) {
		l.acquire = func(ctx context.Context, l lockstep.Locker, name string, opts []lockstep.AcquireOption) (lockstep.Lock, error) {
			lock, err := l.Acquire(ctx, name, opts...)
			time.Sleep(200 * time.Microsecond)
			if err == nil && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return lock, err
		}
	}},
	{"context of acquire ends the lock", "a lock outlives the context of its acquire and is renewed", func(_ *memlock.Space, l *tampered) {
		l.acquire = func(ctx context.Context, l lockstep.Locker, name string, opts []lockstep.AcquireOption) (lockstep.Lock, error) {
			lock, err := l.Acquire(ctx, name, opts...)
			if err == nil {
				context.AfterFunc(ctx, func() { lock.Release(context.Background()) })
			}
			return lock, err
		}
	}},
	{"option dropped in silence", "what is not claimed is refused", func(_ *memlock.Space, l *tampered) {
		l.caps = func(c *lockstep.Capabilities) { c.LockDelay = false }
	}},
	{"more claimed than the table says", "capabilities are those that the backend must claim", func(_ *memlock.Space, l *tampered) {
		l.caps = func(c *lockstep.Capabilities) { c.SurvivesFailover = true }
	}},
	{"goroutine left", "no goroutine is left after close", func(_ *memlock.Space, l *tampered) {
		l.close = func(ctx context.Context, l lockstep.Locker) error {
			go time.Sleep(time.Minute)
			return l.Close(ctx)
		}
	}},
	{"bad names accepted", "bad names are refused", func(_ *memlock.Space, l *tampered) {
		l.acquire = func(ctx context.Context, l lockstep.Locker, name string, opts []lockstep.AcquireOption) (lockstep.Lock, error) {
			lock, err := l.Acquire(ctx, name, opts...)
			if errors.Is(err, lockstep.ErrInvalid) {
				return l.Acquire(ctx, fmt.Sprintf("escaped-%x", name[:min(len(name), 64)]), opts...)
			}
			return lock, err
		}
	}},
	{"last come, first served", "waiters are granted in the order of their requests", func(_ *memlock.Space, l *tampered) {
		l.acquire = func(ctx context.Context, l lockstep.Locker, name string, opts []lockstep.AcquireOption) (lockstep.Lock, error) {
			for { // polls with growing waits, as simple backends do
				lock, err := lockstep.TryAcquire(ctx, l, name, opts...)
				if !errors.Is(err, lockstep.ErrBusy) || wantsTry(l, name, opts) {
					return lock, err
				}
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Duration(1+time.Now().UnixNano()%50) * time.Millisecond):
				}
			}
		}
	}},
}

func wantsTry(l lockstep.Locker, name string, opts []lockstep.AcquireOption) bool {
	cfg, err := lockstep.ResolveAcquire(l.Capabilities(), name, opts...)
	return err != nil || cfg.Try()
}

// counting is the check that must run alone: it counts the goroutines of the process.
const counting = "no goroutine is left after close"

func TestSuiteFailsOnBadBackends(t *testing.T) {
	var all []func()
	for _, p := range plants {
		test := func() { t.Run(p.name, func(t *testing.T) { mustFail(t, p.caught, p.plant) }) }
		if p.caught == counting {
			test()
			continue
		}
		all = append(all, test)
	}
	together(all)
}

func mustFail(t *testing.T, name string, plant func(*memlock.Space, *tampered)) {
	b := tamperedBackend(t, plant)
	b.Slack = 500 * time.Millisecond
	failures := record(t, b, name)
	if len(failures) == 0 {
		t.Fatalf("%q passes", name)
	}
	t.Logf("caught: %s", lockstep.Excerpt(failures[0]))
}

// tamperedBackend is memlock with a fault planted in each Locker.
func tamperedBackend(t *testing.T, plant func(*memlock.Space, *tampered)) Backend {
	b := memory()
	space := b.New(t).(*memlock.Locker).Space()
	b.New = func(*testing.T) lockstep.Locker {
		l := &tampered{Locker: space.Locker()}
		plant(space, l)
		return l
	}
	b.Server.Cut = func(_ *testing.T, l lockstep.Locker) { l.(*tampered).Locker.(*memlock.Locker).Cut() }
	b.Server.Heal = func(_ *testing.T, l lockstep.Locker) { l.(*tampered).Locker.(*memlock.Locker).Heal() }
	return b
}

// TestSuitePassesOnAHarmlessWrapper shows that the checks fail because of the planted fault and not
// because of the wrapping.
func TestSuitePassesOnAHarmlessWrapper(t *testing.T) {
	b := tamperedBackend(t, func(_ *memlock.Space, l *tampered) { l.acquire = onLock(func(*tamperedLock) {}) })
	names := map[string]bool{}
	for _, p := range plants {
		names[p.caught] = true
	}
	var all []func()
	for name := range names {
		test := func() {
			t.Run(name, func(t *testing.T) {
				if failures := record(t, b, name); len(failures) != 0 {
					t.Errorf("fails: %q", failures)
				}
			})
		}
		if name == counting {
			test()
			continue
		}
		all = append(all, test)
	}
	together(all)
}
