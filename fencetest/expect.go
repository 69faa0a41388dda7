package fencetest

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// write checks that a write is accepted.
func (e *env) write(s Store, token lockstep.Token, value string) {
	e.Helper()
	if err := s.Write(e.ctx, e.grant(token), []byte(value)); err != nil {
		e.Fatalf("write with token %d: %v", token, err)
	}
}

// enter checks that an enter is accepted.
func (e *env) enter(s Store, token lockstep.Token) {
	e.Helper()
	if err := s.Enter(e.ctx, e.grant(token)); err != nil {
		e.Fatalf("enter with token %d: %v", token, err)
	}
}

// remove checks that a deletion is accepted.
func (e *env) remove(s Store, token lockstep.Token) {
	e.Helper()
	if err := s.Delete(e.ctx, e.grant(token)); err != nil {
		e.Fatalf("delete with token %d: %v", token, err)
	}
}

// holds checks that the value is want.
func (e *env) holds(s Store, want string) {
	e.Helper()
	got, err := s.Read(e.ctx)
	if err != nil {
		e.Fatalf("read: %v, want %q", err, excerpt(want))
	}
	if !bytes.Equal(got, []byte(want)) {
		e.Errorf("the value is %q, want %q", excerpt(string(got)), excerpt(want))
	}
}

// empty checks that there is no value.
func (e *env) empty(s Store) {
	e.Helper()
	got, err := s.Read(e.ctx)
	if !errors.Is(err, fs.ErrNotExist) {
		e.Errorf("read: value %q and error %v, want an error that wraps fs.ErrNotExist", excerpt(string(got)), err)
	}
}

func excerpt(s string) string { return s[:min(len(s), 40)] }

// refused checks that err is a refusal for this reason.
func (e *env) refused(what string, err, reason error) {
	e.Helper()
	if !errors.Is(err, reason) {
		e.Errorf("%s: %v, want %v", what, err, reason)
	}
}

// stale checks that nothing can be done with the token: no write, no enter, no deletion. For
// writing once, the answer may also be that the grant has already written.
func (e *env) stale(s Store, token lockstep.Token) {
	e.Helper()
	e.nothingWith(s, e.grant(token), fence.ErrStale, fence.ErrAlready)
}

// nothingWith checks that each kind of step is refused for the reason, and writing once for that
// reason or another.
func (e *env) nothingWith(s Store, g fence.Grant, reason error, orOnce ...error) {
	e.Helper()
	late := []byte("by a grant to be refused")
	e.refused("write", s.Write(e.ctx, g, late), reason)
	e.refused("enter", s.Enter(e.ctx, g), reason)
	e.refused("delete", s.Delete(e.ctx, g), reason)
	once, ok := s.(OnceStore)
	if !ok {
		return
	}
	err := once.WriteOnce(e.ctx, g, late)
	if !slices.ContainsFunc(append(orOnce, reason), func(r error) bool { return errors.Is(err, r) }) {
		e.Errorf("write once: %v, want %v", err, reason)
	}
}
