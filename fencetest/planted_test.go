package fencetest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

type admitFunc = func(fence.Mark, fence.Grant, fence.Step) (fence.Mark, error)

// plants are bad guards, each with a check that must fail on it.
var plants = []struct {
	name   string
	caught string
	flaw   flaw
}{
	{"no check", "an older token is refused and changes nothing", flaw{admit: func(m fence.Mark, g fence.Grant, _ fence.Step) (fence.Mark, error) {
		return fence.Mark{Backend: g.Backend, Lock: g.Lock, Token: g.Token, Written: g.Token}, nil
	}}},
	{"check and write in two steps", "writers with random tokens never let the accepted ones go down", flaw{store: func(t *toy, c *client, r *row, next row) {
		t.aside()
		*r = next
	}}},
	{"condition on the content", "writers of equal bytes never let the accepted tokens go down", flaw{store: func(t *toy, c *client, r *row, next row) {
		seen := bytes.Clone(r.value)
		t.aside()
		if bytes.Equal(seen, r.value) { // otherwise it would retry, which does not matter here
			*r = next
		}
	}}},
	{"half a value", "writers with random tokens never let the accepted ones go down", flaw{store: func(t *toy, c *client, r *row, next row) {
		half := next
		half.value = next.value[:len(next.value)/2]
		*r = half
		t.aside()
		if r.mark == half.mark {
			*r = next
		}
	}}},
	{"entering raises nothing", "after a newer holder entered the older is refused, although nothing was written", flaw{admit: onEnter(func(old, _ fence.Mark) fence.Mark { return old })}},
	{"entering raises nothing, seen by the counter", "a counter with a holder frozen between read and write is exact", flaw{admit: onEnter(func(old, _ fence.Mark) fence.Mark { return old })}},
	{"entering raises nothing, seen by many counters", "a counter under rising tokens is exact", flaw{admit: onEnter(func(old, _ fence.Mark) fence.Mark { return old })}},
	{"entering updates a row that is not there", "entering an empty resource raises its mark", flaw{admit: onEnter(func(old, next fence.Mark) fence.Mark {
		if !old.Bound() {
			return old
		}
		return next
	})}},
	{"entering truncates", "entering changes no data", flaw{store: func(_ *toy, _ *client, r *row, next row) {
		if next.mark.Token != next.mark.Written {
			next.value = nil
		}
		*r = next
	}}},
	{"entering uses up the one write", "once: entering is no write", flaw{admit: onEnter(func(_, next fence.Mark) fence.Mark {
		next.Written = next.Token
		return next
	})}},
	{"writing raises nothing", "an older token is refused and changes nothing", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		next, err := m.Admit(g, s)
		if m.Bound() && s != fence.Enter {
			next = m
		}
		return next, err
	}}},
	{"marks in the client", "another client sees the mark", flaw{row: func(t *toy, c *client) *row {
		if t.rows[c.resource] == nil {
			t.rows[c.resource] = &row{}
		}
		shared := t.rows[c.resource]
		shared.mark, c.own.mark = c.own.mark, fence.Mark{}
		own := *shared
		c.own = own
		return shared
	}, store: func(_ *toy, c *client, r *row, next row) {
		*r = next
		c.own.mark = next.mark
	}}},
	{"strictly larger", "a grant writes as often as it likes", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		if g.Token == m.Token {
			return m, refusal(fence.ErrStale, m, g)
		}
		return m.Admit(g, s)
	}}},
	{"empty for absent", "what is written is read, and nothing is there before", flaw{read: func(r *row) ([]byte, error) { return r.value, nil }}},
	{"a refusal that says nothing", "a refusal carries both tokens", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		next, err := m.Admit(g, s)
		if errors.Is(err, fence.ErrStale) {
			err = fence.ErrStale
		}
		return next, err
	}}},
	{"tokens as text", "tokens are compared as whole numbers", flaw{admit: compared(func(a, b lockstep.Token) bool { return fmt.Sprint(a) < fmt.Sprint(b) })}},
	{"tokens in 32 bits", "tokens are compared as whole numbers", flaw{admit: compared(func(a, b lockstep.Token) bool { return uint32(a) < uint32(b) })}},
	{"tokens as small floats", "tokens are compared as whole numbers", flaw{admit: compared(func(a, b lockstep.Token) bool { return float32(a) < float32(b) })}},
	{"one mark for all", "resources have marks of their own", flaw{row: func(t *toy, c *client) *row {
		for name, r := range t.rows {
			if name != c.resource && t.rows[c.resource] == nil {
				t.rows[c.resource] = &row{mark: r.mark}
				return t.rows[c.resource]
			}
		}
		if t.rows[c.resource] == nil {
			t.rows[c.resource] = &row{}
		}
		return t.rows[c.resource]
	}}},
	{"equal bytes are not written", "equal bytes written twice do not reopen the door", flaw{store: func(_ *toy, c *client, r *row, next row) {
		if next.exists && r.exists && bytes.Equal(next.value, r.value) && next.mark.Written != r.mark.Written {
			return
		}
		*r = next
	}}},
	{"deletion of the mark", "deletion does not forget the token", flaw{store: func(t *toy, c *client, r *row, next row) {
		if !next.exists && next.mark.Written == next.mark.Token {
			next = row{}
		}
		*r = next
	}}},
	{"deletion that finds nothing", "deleting what is not there raises the mark", flaw{store: func(t *toy, c *client, r *row, next row) {
		if !r.exists && !next.exists {
			return
		}
		*r = next
	}}},
	{"a new owner after deletion", "a deleted resource still belongs to its lock", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		if m.Token == 8 { // the token of the deletion
			m.Backend, m.Lock = g.Backend, g.Lock
		}
		return m.Admit(g, s)
	}}},
	{"once writes again", "once: a grant writes once, and its retry learns that it has", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		return m.Admit(g, min(s, fence.Write))
	}}},
	{"once takes old tokens for retries", "once: an older token is stale, a newer one writes", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		next, err := m.Admit(g, s)
		if s == fence.WriteOnce && errors.Is(err, fence.ErrStale) {
			err = refusal(fence.ErrAlready, m, g)
		}
		return next, err
	}}},
	{"once in two steps", "once: of many attempts at the same time one succeeds", flaw{store: func(t *toy, c *client, r *row, next row) {
		t.aside()
		*r = next
	}}},
	{"any lock", "the token of another lock is refused", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		if m.Bound() && g.Lock != "" {
			g.Lock = m.Lock
		}
		return m.Admit(g, s)
	}}},
	{"any backend", "the token of another backend is refused", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		if m.Bound() && g.Backend != "" {
			g.Backend = m.Backend
		}
		return m.Admit(g, s)
	}}},
	{"a refusal that raises the mark", "the token of another lock is refused", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		next, err := m.Admit(g, s)
		if errors.Is(err, fence.ErrForeign) {
			next.Token = max(next.Token, g.Token)
		}
		return next, err
	}}},
	{"zero for one that need not be checked", "zero and absent tokens are refused", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		if g.Token == 0 {
			return m, nil
		}
		return m.Admit(g, s)
	}}},
	{"any number", "a token above the largest is refused and does not close the door", flaw{admit: func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		if g.Token > lockstep.MaxToken {
			m.Token = g.Token
			return m, nil
		}
		return m.Admit(g, s)
	}}},
	{"data before mark", "a crash between check and write loses nothing", flaw{store: func(_ *toy, c *client, r *row, next row) {
		r.value, r.exists = next.value, next.exists
		if !c.dies {
			*r = next
		}
	}}},
	{"data lost in a crash", "a crash between check and write loses nothing", flaw{store: func(_ *toy, c *client, r *row, next row) {
		*r = row{mark: next.mark}
		if !c.dies {
			*r = next
		}
	}}},
	{"done before it is", "once: a crash between check and write can be repeated", flaw{store: func(_ *toy, c *client, r *row, next row) {
		r.mark = next.mark
		if !c.dies {
			*r = next
		}
	}}},
	{"written when the reply has arrived", "once: a lost reply and its retry count once", flaw{lost: func(r *row) { r.mark.Written = 0 }}},
	{"token forgotten with the reply", "a lost reply and its retry count once", flaw{lost: func(r *row) { r.mark.Token = 8 }}},
	{"marks in memory", "the mark survives a restart", flaw{restart: func(r *row) { r.mark = fence.Mark{} }}},
}

// onEnter changes what entering does to the mark.
func onEnter(change func(old, next fence.Mark) fence.Mark) admitFunc {
	return func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		next, err := m.Admit(g, s)
		if err == nil && s == fence.Enter {
			next = change(m, next)
		}
		return next, err
	}
}

// compared is the rule with a different order of tokens.
func compared(less func(a, b lockstep.Token) bool) admitFunc {
	return func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error) {
		if err := g.Check(); err != nil {
			return m, err
		}
		if m.Bound() && less(g.Token, m.Token) {
			return m, refusal(fence.ErrStale, m, g)
		}
		return fence.Mark{Backend: g.Backend, Lock: g.Lock, Token: g.Token, Written: g.Token}, nil
	}
}

func refusal(reason error, m fence.Mark, g fence.Grant) error {
	return &fence.RefusedError{Reason: reason, Grant: g, Mark: m}
}

func TestSuiteFailsOnBadGuards(t *testing.T) {
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			failures := record(t, newToy(p.flaw).guard(), p.caught)
			if len(failures) == 0 {
				t.Fatalf("%q passes", p.caught)
			}
			t.Logf("caught: %s", failures[0])
		})
	}
}

// TestEachCheckCanFail checks that every check can fail.
func TestEachCheckCanFail(t *testing.T) {
	caught := map[string]bool{}
	for _, p := range plants {
		caught[p.caught] = true
	}
	for _, c := range checks() {
		if !caught[c.name] {
			t.Errorf("no bad guard is planted for %q", c.name)
		}
	}
}

// TestSuitePassesOnAGoodGuard shows that the checks fail because of the planted flaw and not
// because of the toy.
func TestSuitePassesOnAGoodGuard(t *testing.T) {
	Run(t, newToy(flaw{}).guard())
}

// TestSuiteSkipsWhatCannotBeDone runs a guard without any optional features.
func TestSuiteSkipsWhatCannotBeDone(t *testing.T) {
	g := newToy(flaw{}).guard()
	plain := Guard{Open: func(t *testing.T, resource string) Store { return struct{ Store }{g.Open(t, resource)} }}
	skipped := 0
	for _, c := range checks() {
		if c.missing(plain, plain.Open(t, "probe")) != "" {
			skipped++
			continue
		}
		if failures := record(t, plain, c.name); len(failures) != 0 {
			t.Errorf("%s: %q", c.name, failures)
		}
	}
	if skipped != 8 {
		t.Errorf("%d checks do not apply, want those of writing once, crashes and the restart: 8", skipped)
	}
}
