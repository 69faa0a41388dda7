// Package guard turns a URL into the marks of guarded resources, for operators who inspect them and
// bind a resource to another lock. It is the one place where the program knows all stores that have
// a guard.
//
// It writes no data and does not act as a lock holder: that is for the programs that hold locks.
package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
	"github.com/lockstep-dev/lockstep/fence"
)

// A kind is one store: what its URL looks like, and how its marks are accessed.
type kind struct {
	scheme  string
	also    []string // other schemes, such as one for TLS
	example string
	// parse fills in the rest of a Store. It does no I/O.
	parse func(*Store) error
	// open returns the marks and a function that closes the connection.
	open func(context.Context, Store) (fence.Resetter, func(), error)
}

// kinds lists all stores. A new one takes a line here and a file of its own.
var kinds = []*kind{&files, &directory, &postgres, &redis, &etcd, &bucket}

func kindOf(scheme string) *kind {
	for _, k := range kinds {
		if k.scheme == scheme || slices.Contains(k.also, scheme) {
			return k
		}
	}
	return nil
}

// Examples returns a URL of each store.
func Examples() (all []string) {
	for _, k := range kinds {
		all = append(all, k.example)
	}
	return all
}

// A Store says where marks are. [Parse] returns one.
type Store struct {
	kind *kind
	text string
	path string      // for files
	url  backend.URL // for servers
	// marks is where the writing program keeps its marks: a prefix of keys or a table. Empty: the
	// default of the guard.
	marks string
	// Connect bounds how long to try a server that does not answer. Zero: the default of its
	// client.
	Connect time.Duration
}

// Scheme returns the scheme of the store's URL, such as "redis".
func (s Store) Scheme() string { return s.kind.scheme }

// Parse parses the URL of a store. marks is the prefix of the keys, or the table, that the guard
// was configured with; empty means the default. An error says what is wrong, and never contains a
// password.
func Parse(text, marks string) (Store, error) {
	scheme, _, found := strings.Cut(text, "://")
	if !found {
		return Store{}, fmt.Errorf("must be a URL such as %s", strings.Join(Examples(), " or "))
	}
	k := kindOf(scheme)
	if k == nil {
		return Store{}, fmt.Errorf("unknown scheme %s: must be a URL such as %s", lockstep.Excerpt(scheme), strings.Join(Examples(), " or "))
	}
	s := Store{kind: k, text: text, marks: marks}
	if err := k.parse(&s); err != nil {
		return Store{}, err
	}
	return s, nil
}

// parseServer parses the URL of a store that is also a lock backend.
func parseServer(s *Store) (err error) {
	s.url, err = backend.Parse(s.text)
	return err
}

// Marks are the marks of a store. Close closes the connection.
type Marks struct {
	fence.Resetter
	// Close must be called once, after all calls have returned.
	Close func()
}

// Open returns the marks of the store. Some servers must be reached first: ctx bounds that, and the
// error is [lockstep.ErrUnavailable] if it fails. With others, an unavailable server shows when it
// is queried.
func (s Store) Open(ctx context.Context) (Marks, error) {
	resetter, end, err := s.kind.open(ctx, s)
	if err != nil {
		return Marks{}, fmt.Errorf("%s: %w", s.kind.scheme, err)
	}
	return Marks{resetter, end}, nil
}
