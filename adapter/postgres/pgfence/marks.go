package pgfence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep/fence"
)

// DefaultWait bounds one step of [Marks].
const DefaultWait = 10 * time.Second

// Marks keeps the marks of resources that are not in this database, for guards such as
// fence/httpfence. Each step is one statement in its own transaction, one round trip, so it does
// not block others afterwards. It is safe for concurrent use.
type Marks struct {
	guard *Guard
	pool  *pgxpool.Pool
}

var (
	_ fence.Guard    = (*Marks)(nil)
	_ fence.Resetter = (*Marks)(nil)
)

// Marks returns the guard on a pool that the caller still owns.
func (g *Guard) Marks(pool *pgxpool.Pool) *Marks { return &Marks{guard: g, pool: pool} }

// Admit implements [fence.Guard]. It takes at most [DefaultWait]; then it returns [fence.ErrBusy],
// and may still raise the mark later.
func (m *Marks) Admit(ctx context.Context, resource string, g fence.Grant, s fence.Step) error {
	return bounded(ctx, func(ctx context.Context) error {
		return m.guard.step(ctx, pgxRunner{m.pool}, resource, g, s)
	})
}

// Mark implements [fence.Resetter].
func (m *Marks) Mark(ctx context.Context, resource string) (now fence.Mark, err error) {
	err = bounded(ctx, func(ctx context.Context) error {
		now, err = m.guard.Mark(ctx, pgxRunner{m.pool}, resource)
		return err
	})
	return now, err
}

// Reset implements [fence.Resetter].
func (m *Marks) Reset(ctx context.Context, resource string, from, to fence.Mark) error {
	return bounded(ctx, func(ctx context.Context) error {
		return m.guard.Reset(ctx, pgxRunner{m.pool}, resource, from, to)
	})
}

func bounded(ctx context.Context, step func(context.Context) error) error {
	within, cancel := context.WithTimeoutCause(ctx, DefaultWait, fence.ErrBusy)
	defer cancel()
	err := step(within)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(within), fence.ErrBusy) {
		return fmt.Errorf("%w: no answer in %v: %w", fence.ErrBusy, DefaultWait, err)
	}
	return err
}
