package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/fence"
)

// marks returns all marks that order differently relative to the grants with tokens 1 to 4.
func marks() []fence.Mark {
	all := []fence.Mark{{}}
	for _, lock := range []string{"reports", "others"} {
		for token := range lockstep.Token(5) {
			for written := range token + 1 {
				all = append(all, fence.Mark{Backend: "memory:test", Lock: lock, Token: token, Written: written})
			}
		}
	}
	return all
}

// The statement makes the same decision as the rule in Go, for each mark and each grant.
func TestTheStatementKeepsTheRule(t *testing.T) {
	s, _ := sharedServers(t)
	pool, guard, ctx := openPool(t, s.URL()), newGuard(t, pgfence.Config{}), within(t)
	tx := begin(t, pool, pgx.TxOptions{})
	steps := map[fence.Step]takeStep{fence.Enter: guard.Enter, fence.Write: guard.Write, fence.WriteOnce: guard.Once}
	for _, old := range marks() {
		for token := lockstep.Token(1); token < 5; token++ {
			for step, take := range steps {
				name := store(t, tx, old)
				want, wantErr := old.Admit(grant(token), step)
				err := take(ctx, pgfence.Pgx(tx), name, grant(token))
				got, lookErr := guard.Mark(ctx, pgfence.Pgx(tx), name)
				if got != want || lookErr != nil || !sameVerdict(err, wantErr) {
					t.Errorf("%v of token %d at %+v: %+v, %v, want %+v, %v", step, token, old, got, err, want, wantErr)
				}
			}
		}
	}
}

// store creates a resource with this mark.
func store(t *testing.T, tx pgx.Tx, m fence.Mark) string {
	t.Helper()
	name := fresh(t)
	if m.Bound() {
		execute(t, tx, "INSERT INTO lockstep_guards VALUES ($1, $2, $3, $4, $5)", name, m.Backend, m.Lock, int64(m.Token), int64(m.Written))
	}
	return name
}

func sameVerdict(got, want error) bool {
	if got == nil || want == nil {
		return got == want
	}
	a, okA := errors.AsType[*fence.RefusedError](got)
	b, okB := errors.AsType[*fence.RefusedError](want)
	return okA && okB && *a == *b
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	guard := newGuard(t, pgfence.Config{})
	nowhere := pgfence.Pgx(nil) // would panic
	good := grant(7)
	for what, err := range map[string]error{
		"no resource":        guard.Enter(t.Context(), nowhere, "", good),
		"zero in a resource": guard.Write(t.Context(), nowhere, "a\x00b", good),
		"no lock":            guard.Once(t.Context(), nowhere, "x", fence.Grant{Backend: "b", Token: 1}),
		"huge token":         guard.Write(t.Context(), nowhere, "x", grant(lockstep.MaxToken+1)),
		"table":              second(pgfence.New(pgfence.Config{Table: "a.b.c"})),
		"long table":         second(pgfence.New(pgfence.Config{Table: "t234567890123456789012345678901234567890123456789012345678"})),
		"idle":               second(pgfence.New(pgfence.Config{MaxIdle: lockstep.MaxTTL + 1})),
		"protected":          second(pgfence.ProtectSchema("", `x"; DROP`, "x")),
		"resource":           second(pgfence.ProtectSchema("", "x", "")),
		"schema":             second(pgfence.Schema("1")),
	} {
		if !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	if err := guard.Write(t.Context(), nowhere, "x", grant(0)); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("no token: %v, want ErrNoToken", err)
	}
}

func second[T any](_ T, err error) error { return err }

// The trigger uses a resource's name literally, whatever it contains.
func TestAResourceMayHaveAnyName(t *testing.T) {
	s, _ := sharedServers(t)
	pool, ctx := openPool(t, s.URL()), within(t)
	guard := newGuard(t, pgfence.Config{})
	for _, name := range []string{`it's`, `back\slash`, `$1 {table} %`, "日本", "line\nbreak"} {
		table := protected(t, pool, name)
		must(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := guard.Enter(ctx, pgfence.Pgx(tx), name, grant(7)); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s VALUES (1)", table))
			return err
		}))
		m, err := guard.Marks(pool).Mark(ctx, name)
		if want := (fence.Mark{Backend: "memory:test", Lock: "reports", Token: 7, Written: 7}); err != nil || m != want {
			t.Errorf("the mark of %q is %+v, %v, want %+v", name, m, err, want)
		}
	}
}

// protected creates a table with one column, id, protected as the resource.
func protected(t testing.TB, db pgfence.Executor, resource string) (table string) {
	t.Helper()
	table = fresh(t)
	execute(t, db, fmt.Sprintf("CREATE TABLE %s (id int PRIMARY KEY, value int)", table))
	must(t, pgfence.Protect(within(t), db, "", table, resource))
	return table
}

func TestAMarkIsResetWhenTheOperatorHasLooked(t *testing.T) {
	s, _ := sharedServers(t)
	ctx, name := within(t), fresh(t)
	m := newGuard(t, pgfence.Config{}).Marks(openPool(t, s.URL()))
	bound := fence.Mark{Backend: "memory:test", Lock: "reports"}
	must(t, m.Reset(ctx, name, fence.Mark{}, bound))
	must(t, m.Admit(ctx, name, grant(9), fence.Write))
	other := fence.Mark{Backend: "native:prod", Lock: "reports", Token: 3}
	if err := m.Reset(ctx, name, bound, other); !errors.Is(err, fence.ErrMoved) {
		t.Errorf("reset from an old mark: %v, want ErrMoved", err)
	}
	now, err := m.Mark(ctx, name)
	must(t, err)
	if err := m.Reset(ctx, name, now, bound); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("reset to the same lock: %v, want ErrInvalid", err)
	}
	must(t, m.Reset(ctx, name, now, other))
	if err := m.Admit(ctx, name, grant(10), fence.Write); !errors.Is(err, fence.ErrForeign) {
		t.Errorf("write of the former lock: %v, want ErrForeign", err)
	}
	g := fence.Grant{Backend: "native:prod", Lock: "reports", Token: 2}
	if err := m.Admit(ctx, name, g, fence.Write); !errors.Is(err, fence.ErrStale) {
		t.Errorf("write below the first token: %v, want ErrStale", err)
	}
	g.Token = 3
	must(t, m.Admit(ctx, name, g, fence.Write))
}

func TestAnObserverCounts(t *testing.T) {
	s, _ := sharedServers(t)
	var counts fence.Counts
	m := newGuard(t, pgfence.Config{Observer: &counts}).Marks(openPool(t, s.URL()))
	ctx, name := context.Background(), fresh(t)
	for _, token := range []lockstep.Token{7, 6, 8, 0} {
		m.Admit(ctx, name, grant(token), fence.Write)
	}
	if got, want := counts.Tally(), (fence.Tally{Accepted: 2, Stale: 1, NoToken: 1}); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
}
