//go:build unix

package account_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockstep-dev/lockstep/examples/internal/account"
	"github.com/lockstep-dev/lockstep/fence"
)

func TestOnlyTheGuardedAccountRefusesLateWrites(t *testing.T) {
	t.Parallel()
	for _, kind := range account.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			store, err := account.Start(ctx, kind, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			pair, err := account.Open(ctx, store.URL, "rent")
			if err != nil {
				t.Fatal(err)
			}
			a, b := fence.Grant{Backend: "memory:x", Lock: "rent", Token: 1}, fence.Grant{Backend: "memory:x", Lock: "rent", Token: 2}
			for _, each := range []account.Account{pair.Plain, pair.Guarded} {
				want(ctx, t, each, account.Opening)
				must(t, each.Enter(ctx, a))
				must(t, each.Enter(ctx, b))
				must(t, each.Write(ctx, b, 150))
			}
			must(t, pair.Plain.Write(ctx, a, 110))
			if err := pair.Guarded.Write(ctx, a, 110); !errors.Is(err, fence.ErrStale) {
				t.Errorf("late write: %v, want stale", err)
			}
			want(ctx, t, pair.Plain, 110)
			want(ctx, t, pair.Guarded, 150)
		})
	}
}

func want(ctx context.Context, t *testing.T, a account.Account, balance int) {
	t.Helper()
	if got, err := a.Read(ctx); err != nil || got != balance {
		t.Errorf("balance %d, %v, want %d", got, err, balance)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func TestAnUnknownStoreIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := account.Start(t.Context(), "tape", t.TempDir()); err == nil {
		t.Error("an unknown store was started")
	}
	if _, err := account.Open(t.Context(), "tape://x", "rent"); err == nil {
		t.Error("an unknown store was opened")
	}
}
