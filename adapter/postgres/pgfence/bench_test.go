package pgfence_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-dev/lockstep/adapter/postgres/pgfence"
	"github.com/lockstep-dev/lockstep/fence"
)

// What a guard adds to a transaction with one UPDATE.
func BenchmarkTransaction(b *testing.B) {
	s, _ := sharedServers(b)
	pool, ctx := openPool(b, s.URL()), context.Background()
	guard, resource := newGuard(b, pgfence.Config{}), fresh(b)
	plain, guarded := fresh(b), protected(b, pool, resource)
	execute(b, pool, "CREATE TABLE "+plain+" AS SELECT 1 AS id, 0 AS value")
	execute(b, pool, said(7)+"; INSERT INTO "+guarded+" VALUES (1, 0); COMMIT", pgx.QueryExecModeSimpleProtocol)
	step := func(tx pgx.Tx) error { return guard.Write(ctx, pgfence.Pgx(tx), resource, grant(7)) }
	for _, c := range []struct {
		name, table string
		before      func(pgx.Tx) error
	}{
		{"unguarded", plain, func(pgx.Tx) error { return nil }},
		{"guard", plain, step},
		{"guard and trigger", guarded, step},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				must(b, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if err := c.before(tx); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "UPDATE "+c.table+" SET value = value + 1")
					return err
				}))
			}
		})
	}
}

// A step on its own, as fence/httpfence takes it.
func BenchmarkMarks(b *testing.B) {
	s, _ := sharedServers(b)
	m, ctx, resource := newGuard(b, pgfence.Config{}).Marks(openPool(b, s.URL())), context.Background(), fresh(b)
	for b.Loop() {
		must(b, m.Admit(ctx, resource, grant(7), fence.Write))
	}
}
