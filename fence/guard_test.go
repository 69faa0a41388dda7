package fence

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

// unfenced is a backend whose tokens mean nothing, like those of a single Redis key.
type unfenced struct{ lockstep.Locker }

func (unfenced) Capabilities() lockstep.Capabilities {
	return lockstep.Capabilities{Backend: "redis", ClockBound: true}
}

func TestABackendWithoutTokensIsRefusedAtTheStart(t *testing.T) {
	_, err := For(unfenced{memlock.New()}, "prod", "orders/42")
	if !errors.Is(err, lockstep.ErrUnsupported) || !strings.Contains(err.Error(), "redis") {
		t.Errorf("err = %v, want ErrUnsupported that names the backend", err)
	}
}

func TestForChecksItsNames(t *testing.T) {
	for _, tt := range []struct{ cluster, name string }{
		{"", "orders/42"}, {"a b", "orders/42"}, {"prod\n", "orders/42"}, {strings.Repeat("x", 101), "orders/42"}, {"prod", ""}, {"prod", "a//b"},
	} {
		if _, err := For(memlock.New(), tt.cluster, tt.name); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("cluster %q, name %q: %v, want ErrInvalid", tt.cluster, tt.name, err)
		}
	}
}

func TestGrantOf(t *testing.T) {
	locker := memlock.New()
	source, err := For(locker, "prod", "orders/42")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		lock string
		opts []lockstep.AcquireOption
		err  error
	}{
		{"the lock", "orders/42", nil, nil},
		{"a shared lock", "orders/42", []lockstep.AcquireOption{lockstep.WithShared()}, nil},
		{"one of several names", "orders/41", []lockstep.AcquireOption{lockstep.WithAlso("orders/42")}, nil},
		{"another lock", "orders/43", nil, lockstep.ErrInvalid},
		{"permits", "orders/42", []lockstep.AcquireOption{lockstep.WithPermits(1, 2)}, ErrNoToken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lock, err := locker.Acquire(t.Context(), tt.lock, tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Release(context.Background())
			g, err := source.GrantOf(lock)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Fatalf("err = %v, want %v", err, tt.err)
			}
			if want := (Grant{"memory:prod", "orders/42", lock.Token()}); err == nil && g != want {
				t.Errorf("grant %+v, want %+v", g, want)
			}
		})
	}
}

func TestTheGrantOfNoSourceIsRefused(t *testing.T) {
	if _, err := (Mark{}).Admit(Source{}.Grant(7), Write); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("err = %v, want ErrInvalid", err)
	}
}

func TestMemory(t *testing.T) {
	ctx := t.Context()
	m := NewMemory(2)
	if err := m.Admit(ctx, "a", grant(7), Write); err != nil {
		t.Fatal(err)
	}
	if err := m.Admit(ctx, "a", grant(6), Write); !errors.Is(err, ErrStale) {
		t.Errorf("an older token: %v, want ErrStale", err)
	}
	if err := m.Admit(ctx, "b", grant(1), Write); err != nil {
		t.Errorf("another resource: %v", err)
	}
	if err := m.Admit(ctx, "c", grant(1), Write); !errors.Is(err, lockstep.ErrQuota) {
		t.Errorf("one resource too many: %v, want ErrQuota", err)
	}
	if err := m.Admit(ctx, "", grant(1), Write); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("no resource: %v, want ErrInvalid", err)
	}
	seen, err := m.Mark(ctx, "a")
	if err != nil || seen != mark(7, 7) {
		t.Errorf("the mark is %+v, %v", seen, err)
	}
	if err := m.Reset(ctx, "a", seen, Mark{Backend: "memory:new", Lock: "orders/42"}); err != nil {
		t.Error(err)
	}
	if err := m.Admit(ctx, "a", Grant{"memory:new", "orders/42", 1}, Write); err != nil {
		t.Errorf("the new backend after the reset: %v", err)
	}
}

// TestConcurrentStepsAreOneAfterTheOther counts one-shot writes with the same tokens from many
// goroutines: each token is admitted at most once, the largest certainly.
func TestConcurrentStepsAreOneAfterTheOther(t *testing.T) {
	var counts Counts
	guard := Observed(NewMemory(0), &counts)
	const tokens, writers = 50, 8
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for token := range lockstep.Token(tokens) {
				err := guard.Admit(context.Background(), "x", grant(token+1), WriteOnce)
				if err != nil && !errors.Is(err, ErrAlready) && !errors.Is(err, ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := counts.Tally()
	if got.Accepted < 1 || got.Accepted > tokens || got.Accepted+got.Stale+got.Already != tokens*writers {
		t.Errorf("%+v after %d steps", got, tokens*writers)
	}
}

func TestCountsTellTheReasonsApart(t *testing.T) {
	var counts Counts
	guard := Observed(NewMemory(1), &counts)
	for _, step := range []struct {
		resource string
		g        Grant
		s        Step
	}{
		{"x", grant(7), Write}, {"x", grant(7), Enter}, // accepted
		{"x", grant(6), Write},
		{"x", grant(7), WriteOnce},
		{"x", Grant{"memory:other", "orders/42", 8}, Write},
		{"x", Grant{}, Write},
		{"x", grant(lockstep.MaxToken + 1), Write},
		{"y", grant(1), Write}, // no room: a failure, not a verdict
	} {
		guard.Admit(t.Context(), step.resource, step.g, step.s)
	}
	if got, want := counts.Tally(), (Tally{Accepted: 2, Stale: 1, Already: 1, Foreign: 1, NoToken: 1, Invalid: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCheckResource(t *testing.T) {
	for name, good := range map[string]bool{"a": true, strings.Repeat("x", MaxResourceBytes): true, "": false, strings.Repeat("x", MaxResourceBytes+1): false, "\xff": false} {
		if err := CheckResource(name); (err == nil) != good {
			t.Errorf("%q: %v", lockstep.Excerpt(name), err)
		}
	}
}
