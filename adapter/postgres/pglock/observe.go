package pglock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// Inspect implements [lockstep.Inspector]. It shows no waiters: the table does not contain them.
func (l *Locker) Inspect(ctx context.Context, name string) (lockstep.State, error) {
	state, err := l.backend.inspect(ctx, name)
	if err != nil {
		return lockstep.State{}, &lockstep.OpError{Op: "inspect", Lock: name, Err: err}
	}
	return state, nil
}

func (b *backend) inspect(ctx context.Context, name string) (lockstep.State, error) {
	state := lockstep.State{Name: name}
	if err := lockstep.CheckName(name); err != nil {
		return state, err
	}
	if b.isClosed.Load() {
		return state, lockstep.ErrClosed
	}
	var held bool
	var r record
	err := b.askAgain(ctx, b.statements.inspect, []any{name}, append([]any{&held}, r.results()...)...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return state, nil
	case err != nil && ctx.Err() != nil:
		return state, ctx.Err()
	case err != nil:
		return state, readOutcome(err)
	}
	state.NextToken = lockstep.Token(r.token) + 1
	if held {
		state.Holders = []lockstep.Claim{r.claim()}
	}
	return state, nil
}

// readOutcome is the outcome of a statement that changes nothing: it had no effect.
func readOutcome(err error) error {
	if errors.Is(err, lockstep.ErrUncertain) {
		return fmt.Errorf("%w: %v", lockstep.ErrUnavailable, err)
	}
	return err
}

// Watch implements [lockstep.Watcher]. It polls every [Config].PollEvery, so it misses states in
// between. It waits out an outage.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[lockstep.State, error] {
	return func(yield func(lockstep.State, error) bool) {
		var last *lockstep.State
		for wait := (lease.Backoff{Base: l.backend.cfg.PollEvery, Max: l.backend.cfg.PollEvery}); ; {
			state, err := l.Inspect(ctx, name)
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, lockstep.ErrUnavailable): // it may come back
			case err != nil:
				yield(lockstep.State{}, watching(err))
				return
			case last == nil || !reflect.DeepEqual(*last, state):
				last = &state
				if !yield(state, nil) {
					return
				}
			}
			lease.Sleep(ctx, wait.Next())
		}
	}
}

// watching names the operation that the caller requested.
func watching(err error) error {
	op, ok := errors.AsType[*lockstep.OpError](err)
	if !ok {
		return err
	}
	return &lockstep.OpError{Op: "watch", Lock: op.Lock, Err: op.Err}
}
