package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// A store keeps records with an expiry, as Redis or a database does.
type store struct {
	mu      sync.Mutex
	records map[string]record
	tokens  lockstep.Token
}

type record struct {
	claim   string
	public  lockstep.Claim
	expires time.Time
}

func newStore() *store { return &store{records: map[string]record{}} }

func (s *store) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records)
}

func (s *store) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, name)
}

// heldLocked returns the record of a name if it has not expired.
func (s *store) heldLocked(name string) (record, bool) {
	r, ok := s.records[name]
	return r, ok && time.Now().Before(r.expires)
}

// A wire is a backend of records: one client's way to the store.
type wire struct {
	store *store
	ttl   time.Duration
	owner string

	mu  sync.Mutex
	cut chan struct{} // nil while the store is reachable; closed when it is again
	// lose is how many of the next answers get lost after their requests took effect.
	lose int
}

var errReset = errors.New("connection reset")

// reach waits while the store is cut off, as a request in a dead network does.
func (w *wire) reach(ctx context.Context) error {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-cut:
		return errReset
	}
}

// answer is what the client learns about a request that took effect.
func (w *wire) answer(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lose > 0 {
		w.lose--
		return errReset
	}
	return err
}

func (w *wire) Take(ctx context.Context, c *locker.Claim) (locker.Grant, error) {
	if err := w.reach(ctx); err != nil {
		return locker.Grant{}, err
	}
	token, err := w.take(c)
	if err := w.answer(err); err != nil {
		return locker.Grant{}, err
	}
	return locker.Grant{Token: token, Owner: w.owner}, nil
}

func (w *wire) take(c *locker.Claim) (lockstep.Token, error) {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.heldLocked(c.Names[0]); ok {
		return 0, &lockstep.BusyError{Holders: []lockstep.Claim{r.public}}
	}
	s.tokens++
	public := lockstep.Claim{Owner: w.owner, Token: s.tokens, Since: time.Now(), Metadata: c.Metadata}
	s.records[c.Names[0]] = record{c.ID, public, time.Now().Add(c.TTL)}
	return s.tokens, nil
}

func (w *wire) Renew(ctx context.Context, c *locker.Claim) error {
	return w.change(ctx, c, func(r record) {
		r.expires = time.Now().Add(c.TTL)
		w.store.records[c.Names[0]] = r
	})
}

func (w *wire) Drop(ctx context.Context, c *locker.Claim) error {
	return w.change(ctx, c, func(record) { delete(w.store.records, c.Names[0]) })
}

// change applies f to the record of the claim, if it exists.
func (w *wire) change(ctx context.Context, c *locker.Claim, f func(record)) error {
	if err := w.reach(ctx); err != nil {
		return err
	}
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.heldLocked(c.Names[0])
	if !ok || r.claim != c.ID {
		return w.answer(&lockstep.LossError{Reason: lockstep.RecordMissing})
	}
	f(r)
	return w.answer(nil)
}

func (w *wire) Close(context.Context) error { return nil }

func (w *wire) loseAnswers(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = n
}

func (w *wire) setCut(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case on && w.cut == nil:
		w.cut = make(chan struct{})
	case !on && w.cut != nil:
		close(w.cut)
		w.cut = nil
	}
}

// A client is a Locker on a store, with an Inspector.
type client struct {
	locker.Detacher
	wire *wire
}

func (c client) Inspect(_ context.Context, name string) (lockstep.State, error) {
	s := c.wire.store
	s.mu.Lock()
	defer s.mu.Unlock()
	state := lockstep.State{Name: name}
	if r, ok := s.heldLocked(name); ok {
		state.Holders = []lockstep.Claim{r.public}
	}
	return state, nil
}

var clients atomicCounter

type atomicCounter struct {
	mu sync.Mutex
	n  int
}

func (a *atomicCounter) next() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	return a.n
}

func connect(s *store, ttl time.Duration) client {
	w := &wire{store: s, ttl: ttl, owner: fmt.Sprintf("client-%d", clients.next())}
	caps := lockstep.Capabilities{Backend: "records", TTL: ttl, Grace: 100 * time.Millisecond, Fenced: true}
	return client{locker.Detacher{Locker: locker.New(w, locker.Config{Capabilities: caps})}, w}
}
