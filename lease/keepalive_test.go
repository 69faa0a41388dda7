package lease_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// A run is a KeepAlive in a synctest bubble with a renewal that counts its calls.
type run struct {
	clock *fakeClock
	st    *lease.State

	mu    sync.Mutex      // renewals may run concurrently
	calls []time.Duration // when each was sent
}

func newRun(t *testing.T) *run {
	t.Cleanup(func() { time.Sleep(2 * time.Hour) }) // costs nothing, and the longest renewal ends
	r := &run{clock: newFakeClock(), st: lease.New(ttl)}
	r.st.Confirm(r.clock.Now(), r.st.Sending(r.clock.Now()))
	return r
}

// keepAlive renews with reply, which gets the number of the call, starting at 1.
func (r *run) keepAlive(ctx context.Context, reply func(ctx context.Context, call int) error) error {
	return lease.KeepAlive(ctx, r.clock, r.st, func(ctx context.Context) error {
		r.mu.Lock()
		r.calls = append(r.calls, r.clock.Now())
		call := len(r.calls)
		r.mu.Unlock()
		return reply(ctx, call)
	})
}

func wantLoss(t *testing.T, err error) {
	t.Helper()
	loss, ok := errors.AsType[*lockstep.LossError](err)
	if !ok || loss.Reason != lockstep.LeaseEnded || !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("err = %v, want a LossError with %v", err, lockstep.LeaseEnded)
	}
}

func TestKeepAliveRenewsEveryThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := r.keepAlive(ctx, func(context.Context, int) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v, want that of ctx", err)
		}
		for i, at := range r.calls {
			if want := time.Duration(i+1) * lease.Interval(ttl); at != want {
				t.Errorf("renewal %d at %v, want %v", i, at, want)
			}
		}
		if !r.st.Valid(r.clock.Now()) {
			t.Error("the lease is over")
		}
	})
}

func TestKeepAliveEndsBeforeTheServerMayExpireUs(t *testing.T) {
	for name, reply := range map[string]func(context.Context, int) error{
		"when renewals hang":                        func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() },
		"when they fail":                            func(context.Context, int) error { return lockstep.ErrUnavailable },
		"when they hang and later fail":             func(context.Context, int) error { time.Sleep(4 * time.Second); return errors.New("timeout") },
		"when they are confirmed after the end":     func(context.Context, int) error { time.Sleep(15 * time.Second); return nil },
		"when they ignore their context altogether": func(context.Context, int) error { time.Sleep(time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRun(t)
				err := r.keepAlive(t.Context(), reply)
				wantLoss(t, err)
				if got, want := r.clock.Now(), ttl-lease.Margin(ttl); got != want {
					t.Errorf("gave up after %v, want %v", got, want)
				}
				if r.st.Valid(r.clock.Now()) {
					t.Error("the lease is still valid")
				}
			})
		})
	}
}

func TestOneFailedRenewalEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := r.keepAlive(ctx, func(_ context.Context, call int) error {
			if call%3 != 0 { // two of three fail
				return errors.New("no luck")
			}
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v, want that of ctx", err)
		}
	})
}

func TestFailedRenewalIsRetriedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		r.keepAlive(t.Context(), func(context.Context, int) error { return errors.New("no luck") })
		first := lease.Interval(ttl)
		if got := r.calls[0]; got != first {
			t.Fatalf("first renewal at %v, want %v", got, first)
		}
		for i := 1; i < len(r.calls); i++ {
			if gap := r.calls[i] - r.calls[i-1]; gap < 25*ms || gap > ttl/12+ms {
				t.Errorf("retry %d came after %v, want 25ms to %v", i, gap, ttl/12)
			}
		}
		if len(r.calls) < 5 || len(r.calls) > 30 {
			t.Errorf("%d renewals in one TTL", len(r.calls))
		}
	})
}

func TestRenewalThatHangsDoesNotBlockTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := r.keepAlive(ctx, func(ctx context.Context, call int) error {
			if call == 1 {
				time.Sleep(time.Hour) // it does not look at ctx
			}
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v, want that of ctx", err)
		}
	})
}

func TestNoMoreThanFourRenewalsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		var open, most atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		r.keepAlive(ctx, func(_ context.Context, call int) error {
			if n := open.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer open.Add(-1)
			if call%2 == 0 {
				time.Sleep(time.Hour)
			}
			return nil
		})
		if most.Load() > 4 {
			t.Errorf("%d renewals were under way at once", most.Load())
		}
	})
}

func TestLossThatTheBackendTellsEndsKeepAliveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		gone := &lockstep.LossError{Reason: lockstep.RecordMissing}
		err := r.keepAlive(t.Context(), func(context.Context, int) error { return gone })
		if !errors.Is(err, gone) || r.clock.Now() != lease.Interval(ttl) {
			t.Errorf("after %v: %v, want %v", r.clock.Now(), err, gone)
		}
		if r.st.Valid(r.clock.Now()) {
			t.Error("the lease is still valid")
		}
	})
}

func TestSuspendIsNoticedWithin250Milliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		begin := time.Now()
		time.AfterFunc(time.Second, func() { r.clock.suspend(time.Hour) })
		err := r.keepAlive(t.Context(), func(context.Context, int) error { return nil })
		wantLoss(t, err)
		if took := time.Since(begin) - time.Second; took > lease.WatchEvery {
			t.Errorf("noticed after %v on the timers' clock, want at most %v", took, lease.WatchEvery)
		}
		if len(r.calls) != 0 {
			t.Errorf("renewed %d times a lease that was over", len(r.calls))
		}
	})
}

func TestEndStopsKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		time.AfterFunc(time.Second, r.st.End)
		wantLoss(t, r.keepAlive(t.Context(), func(context.Context, int) error { return nil }))
		if got := r.clock.Now(); got > time.Second+lease.WatchEvery {
			t.Errorf("ended after %v", got)
		}
	})
}

func TestOutageThatIsShorterThanTheLeaseLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		err := r.keepAlive(ctx, func(context.Context, int) error {
			if r.clock.Now()%(20*time.Second) < 5*time.Second { // 5 s away in every 20 s
				return lockstep.ErrUnavailable
			}
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v, want that of ctx", err)
		}
	})
}

// The backend counts each renewal from 4 s before it was sent, so the lease of 10 s ends 4 s sooner
// after the last one.
func TestKeepAliveCountsFromWhereTheBackendDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t)
		const lag = 4 * time.Second
		calls, last := 0, time.Duration(0)
		err := lease.KeepAliveSince(t.Context(), r.clock, r.st, func(context.Context) (time.Duration, error) {
			if calls++; calls > 3 {
				return 0, errors.New("away")
			}
			last = r.clock.Now()
			return last - lag, nil
		})
		wantLoss(t, err)
		if over := r.clock.Now() - last; over < valid-lag || over > valid-lag+lease.WatchEvery {
			t.Errorf("lost %v after the last renewal was sent, want %v", over, valid-lag)
		}
	})
}
