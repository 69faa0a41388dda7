package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
	"github.com/lockstep-dev/lockstep/locktest"
)

const ttl = 3 * time.Second

func TestABackendOfRecordsKeepsTheContract(t *testing.T) {
	s := newStore()
	locktest.Run(t, locktest.Backend{
		New: func(*testing.T) lockstep.Locker { return connect(s, time.Second) },
		Server: locktest.Server{
			Cut:    func(_ *testing.T, l lockstep.Locker) { l.(client).wire.setCut(true) },
			Heal:   func(_ *testing.T, l lockstep.Locker) { l.(client).wire.setCut(false) },
			Delete: func(_ *testing.T, name string) { s.remove(name) },
		},
		Claims: &lockstep.Capabilities{Fenced: true},
	})
}

// inBubble runs a test on a fake clock: waits cost nothing, and a leftover goroutine fails it.
func inBubble(t *testing.T, f func(t *testing.T, s *store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newStore()) })
}

// opened returns a Locker on the bubble's clock, closed at the end.
func opened(t *testing.T, s *store) client { return openedFor(t, s, ttl) }

func openedFor(t *testing.T, s *store, ttl time.Duration) client {
	w := &wire{store: s, ttl: ttl, owner: fmt.Sprintf("client-%d", clients.next())}
	caps := lockstep.Capabilities{Backend: "records", TTL: ttl, Grace: 100 * time.Millisecond, Fenced: true}
	c := client{locker.Detacher{Locker: locker.New(w, locker.Config{Capabilities: caps, Clock: bubbleClock{time.Now()}})}, w}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

type bubbleClock struct{ origin time.Time }

func (c bubbleClock) Now() time.Duration { return time.Since(c.origin) }

func acquire(t *testing.T, l lockstep.Locker, opts ...lockstep.AcquireOption) lockstep.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), "job", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAGrantWhoseAnswerIsLostIsUndone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		c.wire.loseAnswers(2) // that of Take, and that of the first Drop
		_, err := lockstep.TryAcquire(t.Context(), c, "job")
		if !errors.Is(err, lockstep.ErrUncertain) || lockstep.SafeToRetry(err) {
			t.Fatalf("%v, want ErrUncertain", err)
		}
		time.Sleep(ttl / 3)
		if n := s.size(); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}

func TestAWaitThatEndsDuringATryIsBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		a, b := opened(t, s), opened(t, s)
		acquire(t, a)
		time.AfterFunc(time.Second, func() { b.wire.setCut(true) }) // the next try gets no answer before the wait is over
		_, err := b.Acquire(t.Context(), "job", lockstep.WithWait(1700*time.Millisecond))
		if busy, ok := errors.AsType[*lockstep.BusyError](err); !ok || len(busy.Holders) != 1 {
			t.Errorf("%v, want who has the lock", err)
		}
		b.wire.setCut(false)
	})
}

func TestAnAcquireGoesOnAfterALostAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		c.wire.loseAnswers(1)
		if k := acquire(t, c); k.Token() < 2 {
			t.Errorf("token %d: the first try was not undone", k.Token())
		}
	})
}

func TestAReleaseWhoseAnswerIsLostIsConfirmedByTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		k := acquire(t, c)
		c.wire.loseAnswers(1)
		if err := k.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
		if err := k.Release(t.Context()); err != nil {
			t.Errorf("release again: %v", err)
		}
	})
}

func TestAReleaseAfterTheRecordWasDeletedSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		k := acquire(t, c)
		s.remove("job")
		for range 2 {
			if err := k.Release(t.Context()); !errors.Is(err, lockstep.ErrLost) {
				t.Errorf("release: %v, want ErrLost", err)
			}
		}
	})
}

// A store whose client is cut off for good cannot be reached: the record's own expiry frees the
// lock, and Close does not wait longer than its context.
func TestCloseGivesUpWhenTheStoreIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := connect(s, ttl)
		acquire(t, c)
		c.wire.setCut(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Close(ctx); !errors.Is(err, lockstep.ErrUncertain) {
			t.Errorf("close: %v, want ErrUncertain", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("close took %v", took)
		}
		if _, err := c.Acquire(t.Context(), "job"); !errors.Is(err, lockstep.ErrClosed) {
			t.Errorf("acquire after close: %v", err)
		}
	})
}

func TestAStoreThatDoesNotAnswerIsUnavailableAfterAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		c.wire.setCut(true)
		began := time.Now()
		_, err := c.Acquire(t.Context(), "job")
		if !errors.Is(err, lockstep.ErrUncertain) && !errors.Is(err, lockstep.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("gave up after %v, want 5 s and one try", took)
		}
		c.wire.setCut(false)
	})
}

func TestALockDetachedByOneIsReleasedByAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		a, b := openedFor(t, s, 2*ttl), opened(t, s)
		k := acquire(t, a)
		h, err := a.Detach(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Check(); !errors.Is(err, lockstep.ErrDetached) {
			t.Errorf("check: %v", err)
		}
		time.Sleep(3 * ttl / 2)
		again, err := b.Attach(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if left := again.Remaining(); left < 3*ttl/2 {
			t.Errorf("%v remain of a lease that was taken for %v", left, 2*ttl)
		}
		time.Sleep(3 * ttl) // it is renewed
		if again.Check() != nil || again.Token() != k.Token() || again.Name() != "job" {
			t.Errorf("attached: %v, token %d, name %q", again.Check(), again.Token(), again.Name())
		}
		if err := again.Release(t.Context()); err != nil || s.size() != 0 {
			t.Errorf("release: %v, %d records", err, s.size())
		}
		if _, err := b.Attach(t.Context(), h); !errors.Is(err, lockstep.ErrLost) {
			t.Errorf("attach of a released lock: %v", err)
		}
	})
}

func TestAHandleOfSomethingElseIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		for _, h := range []lockstep.Handle{"", "x", "e30", "eyJCYWNrZW5kIjoicmVkaXMiLCJOYW1lcyI6WyJqb2IiXSwiSUQiOiJ4In0"} {
			if _, err := c.Attach(t.Context(), h); !errors.Is(err, lockstep.ErrInvalid) {
				t.Errorf("attach of %q: %v, want ErrInvalid", h, err)
			}
		}
	})
}

func TestALongestHoldFreesTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		k := acquire(t, c, lockstep.WithMaxHold(10*time.Second))
		time.Sleep(10*time.Second + time.Second)
		if loss, ok := errors.AsType[*lockstep.LossError](k.Check()); !ok || loss.Reason != lockstep.MaxHoldReached {
			t.Errorf("check: %v", k.Check())
		}
		if s.size() != 0 {
			t.Error("the record is still there")
		}
	})
}

// A stuck is a wire on which only the first try gets through: the others wait for a connection
// until their context ends.
type stuck struct {
	*wire
	tries atomic.Int64
}

func (s *stuck) Take(ctx context.Context, c *locker.Claim) (locker.Grant, error) {
	if s.tries.Add(1) == 1 {
		return s.wire.Take(ctx, c)
	}
	<-ctx.Done()
	return locker.Grant{}, fmt.Errorf("%w: %w", lockstep.ErrUnavailable, ctx.Err())
}

func TestAWaitThatEndsInTheMiddleOfATryIsBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		acquire(t, opened(t, s))
		caps := lockstep.Capabilities{Backend: "records", TTL: ttl, Fenced: true}
		l := locker.New(&stuck{wire: &wire{store: s, ttl: ttl, owner: "stuck"}}, locker.Config{Capabilities: caps, Clock: bubbleClock{time.Now()}})
		defer l.Close(t.Context())
		_, err := l.Acquire(t.Context(), "job", lockstep.WithWait(500*time.Millisecond))
		if busy, ok := errors.AsType[*lockstep.BusyError](err); !ok || len(busy.Holders) != 1 {
			t.Errorf("acquire: %v, want who has the lock", err)
		}
	})
}
