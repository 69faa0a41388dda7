package fencetest

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/fence"
)

// A row is what a toy store holds for a resource.
type row struct {
	mark   fence.Mark
	value  []byte
	exists bool
}

// A toy is a server with guarded resources in memory. It is correct unless a flaw is planted in it.
type toy struct {
	mu   sync.Mutex
	rows map[string]*row
	flaw flaw
}

// A flaw replaces part of the toy. Its functions are called with the toy's mutex held and may
// release it.
type flaw struct {
	// admit decides; by default it follows the rule.
	admit func(m fence.Mark, g fence.Grant, s fence.Step) (fence.Mark, error)
	// store puts mark and value in place; by default in one step.
	store func(t *toy, client *client, r *row, next row)
	// read returns a value.
	read func(r *row) ([]byte, error)
	// row finds the row of a resource.
	row func(t *toy, c *client) *row
	// restart is what a restart forgets.
	restart func(r *row)
	// lost decides what happens to a mark whose reply was lost.
	lost func(r *row)
}

// A client is a [Store] of the toy.
type client struct {
	toy      *toy
	resource string
	own      row // for a flaw
	dies     bool
	deaf     bool
}

func newToy(f flaw) *toy { return &toy{rows: map[string]*row{}, flaw: f} }

func (t *toy) guard() Guard {
	return Guard{
		Open: func(_ *testing.T, resource string) Store { return &client{toy: t, resource: resource} },
		Crashes: []Crash{{Moment: "in the middle", Write: func(_ *testing.T, s Store, g fence.Grant, value []byte) {
			c := s.(*client)
			c.dies = true
			c.Write(context.Background(), g, value)
		}}},
		LoseReply: func(_ *testing.T, s Store) { s.(*client).deaf = true },
		Restart: func(*testing.T) {
			t.mu.Lock()
			defer t.mu.Unlock()
			for _, r := range t.rows {
				if t.flaw.restart != nil {
					t.flaw.restart(r)
				}
			}
		},
	}
}

func (t *toy) row(c *client) *row {
	if t.flaw.row != nil {
		return t.flaw.row(t, c)
	}
	if t.rows[c.resource] == nil {
		t.rows[c.resource] = &row{}
	}
	return t.rows[c.resource]
}

func (c *client) step(g fence.Grant, s fence.Step, change func(*row)) error {
	t := c.toy
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.row(c)
	admit := fence.Mark.Admit
	if t.flaw.admit != nil {
		admit = t.flaw.admit
	}
	mark, err := admit(r.mark, g, s)
	if err != nil {
		if t.flaw.admit != nil {
			r.mark = mark
		}
		return err
	}
	next := *r
	next.mark = mark
	change(&next)
	switch {
	case t.flaw.store != nil:
		t.flaw.store(t, c, r, next)
	case !c.dies:
		*r = next
	}
	if c.deaf && s != fence.Enter {
		c.deaf = false
		if t.flaw.lost != nil {
			t.flaw.lost(r)
		}
		return errors.New("the reply is lost")
	}
	return nil
}

func (c *client) Enter(_ context.Context, g fence.Grant) error {
	return c.step(g, fence.Enter, func(*row) {})
}

func (c *client) Write(_ context.Context, g fence.Grant, value []byte) error {
	return c.step(g, fence.Write, func(r *row) { r.value, r.exists = slices.Clone(value), true })
}

func (c *client) WriteOnce(_ context.Context, g fence.Grant, value []byte) error {
	return c.step(g, fence.WriteOnce, func(r *row) { r.value, r.exists = slices.Clone(value), true })
}

func (c *client) Delete(_ context.Context, g fence.Grant) error {
	return c.step(g, fence.Write, func(r *row) { r.value, r.exists = nil, false })
}

func (c *client) Read(context.Context) ([]byte, error) {
	c.toy.mu.Lock()
	defer c.toy.mu.Unlock()
	r := c.toy.row(c)
	if c.toy.flaw.read != nil {
		return c.toy.flaw.read(r)
	}
	if !r.exists {
		return nil, fs.ErrNotExist
	}
	return r.value, nil
}

// aside lets others use the toy for a moment.
func (t *toy) aside() {
	t.mu.Unlock()
	runtime.Gosched()
	time.Sleep(50 * time.Microsecond)
	t.mu.Lock()
}
