package pgfence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// KeepIdle, as [Config].MaxIdle, leaves idle_in_transaction_session_timeout as it is.
const KeepIdle time.Duration = -1

// Config adjusts a [Guard]. The zero value is ready for use.
type Config struct {
	// Table is the marks table: table or schema.table, each 1 to 57 letters, digits and _. The
	// default schema is public. Default: [DefaultTable].
	Table string

	// MaxIdle bounds how long the transaction may wait for its client between two statements after
	// the step: the guard sets idle_in_transaction_session_timeout for the transaction, unless it
	// is already lower. A holder that freezes in the middle of a transaction keeps the mark locked,
	// and so keeps the next holder out, until the server ends its session. It should be at most the
	// TTL of the lock. It is 1 ms to [lockstep.MaxTTL]; default: [lockstep.DefaultTTL]. [KeepIdle]
	// keeps the server's setting.
	MaxIdle time.Duration

	// Observer is notified of each decision, before the transaction commits. Default: none.
	Observer fence.Observer
}

// A Guard takes the steps of grants in the caller's transactions. It is safe for concurrent use; a
// transaction is not.
type Guard struct {
	admit, look, lookLocked, reset, bind string
	idleMS                               int64
	observer                             fence.Observer
}

// New returns a Guard. It sends nothing: [Migrate] creates the table. A bad Config is a
// [*lockstep.InvalidError].
func New(c Config) (*Guard, error) {
	n, err := namesOf(c.Table)
	if err != nil {
		return nil, err
	}
	idle, err := idleMS(c.MaxIdle)
	if err != nil {
		return nil, err
	}
	return &Guard{
		admit: n.fill(admit), look: n.fill(look), lookLocked: n.fill(lookLocked), reset: n.fill(reset), bind: n.fill(bind),
		idleMS: idle, observer: c.Observer,
	}, nil
}

func idleMS(d time.Duration) (int64, error) {
	switch {
	case d == KeepIdle:
		return 0, nil
	case d == 0:
		return lockstep.DefaultTTL.Milliseconds(), nil
	case d < time.Millisecond || d > lockstep.MaxTTL:
		return 0, &lockstep.InvalidError{Field: "MaxIdle", Value: d.String(), Rule: fmt.Sprintf("must be 1ms to %v, or KeepIdle", lockstep.MaxTTL)}
	}
	return d.Milliseconds(), nil
}

// Enter raises the mark of the resource and writes no data. Call it before the first read of a
// grant, and commit before the result of that read leaves the transaction: a rollback undoes the
// raised mark.
func (g *Guard) Enter(ctx context.Context, tx Tx, resource string, grant fence.Grant) error {
	return g.step(ctx, tx, resource, grant, fence.Enter)
}

// Write admits the writes that follow in the same transaction. It comes before them, and before the
// reads that they depend on: no other step happens on the resource until the transaction ends.
//
// For a verdict, [fence.Refused] is true; roll back then. The wait for another step is bounded by
// ctx and by the lock_timeout of the transaction; the latter returns [fence.ErrBusy]. Any other
// error may have ended the transaction, and nothing was changed.
func (g *Guard) Write(ctx context.Context, tx Tx, resource string, grant fence.Grant) error {
	return g.step(ctx, tx, resource, grant, fence.Write)
}

// Once is Write for work that is done once per grant: if the grant has already written here in a
// committed transaction, it returns [fence.ErrAlready]. A retry after a COMMIT whose reply was lost
// thus learns that it took effect.
func (g *Guard) Once(ctx context.Context, tx Tx, resource string, grant fence.Grant) error {
	return g.step(ctx, tx, resource, grant, fence.WriteOnce)
}

func (g *Guard) step(ctx context.Context, tx Tx, resource string, grant fence.Grant, s fence.Step) error {
	err := g.decide(ctx, tx, resource, grant, s)
	fence.Tell(g.observer, resource, grant, s, err)
	return named(s.String(), resource, err)
}

func (g *Guard) decide(ctx context.Context, tx Tx, resource string, grant fence.Grant, s fence.Step) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	if _, err := (fence.Mark{}).Admit(grant, s); err != nil { // refused whatever the mark is
		return err
	}
	var settings string
	err := tx.queryRow(ctx, g.admit, resource, grant.Backend, grant.Lock, int64(grant.Token),
		s != fence.Enter, s == fence.WriteOnce, g.idleMS).Scan(&settings)
	if isNoRow(err) {
		return g.refusal(ctx, tx, resource, grant, s)
	}
	return reason(err)
}

// refusal says why the step was refused.
func (g *Guard) refusal(ctx context.Context, tx Tx, resource string, grant fence.Grant, s fence.Step) error {
	m, err := read(tx.queryRow(ctx, g.look, resource))
	if err != nil {
		return err
	}
	if _, err := m.Admit(grant, s); err != nil {
		return err
	}
	return fmt.Errorf("%w: its mark was reset meanwhile", fence.ErrBusy)
}

// Mark returns the current mark of the resource, or zero if it has none. An existing mark cannot
// change until the transaction ends.
func (g *Guard) Mark(ctx context.Context, tx Tx, resource string) (fence.Mark, error) {
	if err := checkResource(resource); err != nil {
		return fence.Mark{}, named("read mark of", resource, err)
	}
	m, err := read(tx.queryRow(ctx, g.lookLocked, resource))
	return m, named("read mark of", resource, err)
}

// Reset gives the resource to another lock or backend, as [fence.Mark.Reset] defines. It is for
// operators, never for writers.
func (g *Guard) Reset(ctx context.Context, tx Tx, resource string, from, to fence.Mark) error {
	return named("reset", resource, g.replace(ctx, tx, resource, from, to))
}

func (g *Guard) replace(ctx context.Context, tx Tx, resource string, from, to fence.Mark) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	now, err := read(tx.queryRow(ctx, g.look, resource))
	if err != nil {
		return err
	}
	next, err := now.Reset(from, to)
	if err != nil {
		return err
	}
	var done bool
	if now.Bound() {
		err = tx.queryRow(ctx, g.reset, resource, now.Backend, now.Lock, int64(now.Token), int64(now.Written),
			next.Backend, next.Lock, int64(next.Token)).Scan(&done)
	} else {
		err = tx.queryRow(ctx, g.bind, resource, next.Backend, next.Lock, int64(next.Token)).Scan(&done)
	}
	if isNoRow(err) {
		return fence.ErrMoved
	}
	return reason(err)
}

// read returns the mark in the row, zero if there is none.
func read(r row) (fence.Mark, error) {
	var m fence.Mark
	var token, written int64
	err := r.Scan(&m.Backend, &m.Lock, &token, &written)
	if isNoRow(err) {
		return fence.Mark{}, nil
	}
	m.Token, m.Written = lockstep.Token(token), lockstep.Token(written)
	return m, reason(err)
}

func named(what, resource string, err error) error {
	if err == nil || errors.Is(err, lockstep.ErrInvalid) {
		return err // it already names the field
	}
	return fmt.Errorf("%s %s: %w", what, resource, err)
}
