package fence

import (
	"encoding/json"
	"fmt"

	"github.com/lockstep-dev/lockstep"
)

// A Step is what a writer wants to do on a resource.
type Step int

const (
	// Enter raises the mark and writes no data. It comes before the first read.
	Enter Step = iota + 1
	// Write writes data, any number of times. Deleting is a write.
	Write
	// WriteOnce writes data unless the grant has written here before.
	WriteOnce
)

func (s Step) String() string {
	switch s {
	case Enter:
		return "enter"
	case Write:
		return "write"
	case WriteOnce:
		return "write once"
	default:
		return fmt.Sprintf("Step(%d)", int(s))
	}
}

// A Mark is what a guard stores with a resource. The zero Mark belongs to a resource that no grant
// has reached yet; one with a Lock and Token zero is bound to that lock before its first grant. In
// JSON its tokens are strings.
type Mark struct {
	// Backend and Lock identify the lock that the resource belongs to.
	Backend string `json:"backend"`
	Lock    string `json:"lock"`
	// Token is the highest seen.
	Token lockstep.Token `json:"token,string"`
	// Written is the token of the last admitted write, or zero if there was none. It is at most
	// Token, and differs from it after an Enter. Only [WriteOnce] uses it.
	Written lockstep.Token `json:"written,string"`
}

// Admit decides about one step of a grant: it returns the mark to store, or m and a
// [*RefusedError] or [*lockstep.InvalidError]. It panics on an unknown step.
func (m Mark) Admit(g Grant, s Step) (Mark, error) {
	if s < Enter || s > WriteOnce {
		panic(fmt.Sprintf("fence: unknown step %d", int(s)))
	}
	if err := g.Check(); err != nil {
		return m, err
	}
	if reason := m.reasonAgainst(g, s); reason != nil {
		return m, &RefusedError{Reason: reason, Grant: g, Mark: m}
	}
	next := Mark{Backend: g.Backend, Lock: g.Lock, Token: g.Token, Written: m.Written}
	if s != Enter {
		next.Written = g.Token
	}
	return next, nil
}

func (m Mark) reasonAgainst(g Grant, s Step) error {
	switch {
	case m.Bound() && (m.Backend != g.Backend || m.Lock != g.Lock):
		return ErrForeign
	case s == WriteOnce && g.Token == m.Written:
		return ErrAlready // also when a later holder has entered since: the retry needs to know
	case g.Token < m.Token:
		return ErrStale
	default:
		return nil
	}
}

// Bound reports whether the resource belongs to a lock.
func (m Mark) Bound() bool { return m.Backend != "" || m.Lock != "" }

// Reset decides about giving a resource to another lock or backend, which an operator does after
// moving to another cluster or renaming the lock, while no writer is running. from must be the
// current mark, which proves that the operator has read it; otherwise the error is [ErrMoved]. to
// names the new lock, and may set a first token. Its binding must differ, or the error is
// [lockstep.ErrInvalid]: for the same lock, a lower mark would only let an older holder in.
func (m Mark) Reset(from, to Mark) (Mark, error) {
	if m != from {
		return m, fmt.Errorf("%w: it is lock %q of %q with token %d, not lock %q of %q with token %d",
			ErrMoved, m.Lock, m.Backend, m.Token, from.Lock, from.Backend, from.Token)
	}
	to.Written = 0
	if err := to.check(); err != nil {
		return m, err
	}
	if !to.Bound() || to.Backend == m.Backend && to.Lock == m.Lock {
		return m, &lockstep.InvalidError{Field: "reset", Value: lockstep.Excerpt(to.Lock), Rule: "must name another lock or backend than the present one"}
	}
	return to, nil
}

func (m Mark) check() error {
	switch {
	case m == Mark{}:
		return nil
	case m.Token > lockstep.MaxToken || m.Written > m.Token:
		return &lockstep.InvalidError{Field: "mark", Value: fmt.Sprintf("%d/%d", m.Written, m.Token), Rule: fmt.Sprintf("written must be at most the token, and that at most %d", lockstep.MaxToken)}
	}
	if err := CheckBackend(m.Backend); err != nil {
		return err
	}
	return lockstep.CheckName(m.Lock)
}

// UnmarshalJSON reads a mark and refuses one that no guard could have stored: a guard that cannot
// read its mark must admit no one.
func (m *Mark) UnmarshalJSON(data []byte) error {
	type plain Mark // without this method
	var read plain
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	if err := Mark(read).check(); err != nil {
		return fmt.Errorf("fence: no guard has stored this mark: %v", err) // not wrapped: this is not a verdict about a writer
	}
	*m = Mark(read)
	return nil
}
