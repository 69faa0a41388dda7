package fence

import (
	"context"
	"errors"
	"sync/atomic"
)

// An Observer is notified of a guard's decisions, for metrics and logs. It is called before the
// step returns, by many goroutines at once, and must not block.
type Observer interface {
	// Accepted is called after a step was admitted and, for a guard with data, written.
	Accepted(resource string, g Grant, s Step)
	// Refused is called with the verdict. A refusal by [ErrStale] deserves attention: a holder
	// continued after its lease had ended.
	Refused(resource string, g Grant, s Step, verdict error)
}

// Tell notifies the Observer, if there is one, of how a step ended. It does not report failures
// that are not verdicts. It is for authors of guards.
func Tell(o Observer, resource string, g Grant, s Step, err error) {
	switch {
	case o == nil:
	case err == nil:
		o.Accepted(resource, g, s)
	case Refused(err):
		o.Refused(resource, g, s, err)
	}
}

// Observed returns the guard with an Observer.
func Observed(guard Guard, o Observer) Guard { return &observed{guard, o} }

type observed struct {
	guard    Guard
	observer Observer
}

func (w *observed) Admit(ctx context.Context, resource string, g Grant, s Step) error {
	err := w.guard.Admit(ctx, resource, g, s)
	Tell(w.observer, resource, g, s, err)
	return err
}

// Counts is an [Observer] that counts. The zero value is ready for use.
type Counts struct {
	accepted, stale, already, foreign, noToken, invalid atomic.Uint64
}

var _ Observer = (*Counts)(nil)

// A Tally is a snapshot of [Counts].
type Tally struct {
	Accepted uint64
	// Refusals by reason. Invalid counts malformed grants.
	Stale, Already, Foreign, NoToken, Invalid uint64
}

// Accepted implements [Observer].
func (c *Counts) Accepted(string, Grant, Step) { c.accepted.Add(1) }

// Refused implements [Observer].
func (c *Counts) Refused(_ string, _ Grant, _ Step, verdict error) { c.of(verdict).Add(1) }

func (c *Counts) of(verdict error) *atomic.Uint64 {
	switch {
	case errors.Is(verdict, ErrStale):
		return &c.stale
	case errors.Is(verdict, ErrAlready):
		return &c.already
	case errors.Is(verdict, ErrForeign):
		return &c.foreign
	case errors.Is(verdict, ErrNoToken):
		return &c.noToken
	default:
		return &c.invalid
	}
}

// Tally reads the counts.
func (c *Counts) Tally() Tally {
	return Tally{
		Accepted: c.accepted.Load(), Stale: c.stale.Load(), Already: c.already.Load(),
		Foreign: c.foreign.Load(), NoToken: c.noToken.Load(), Invalid: c.invalid.Load(),
	}
}
