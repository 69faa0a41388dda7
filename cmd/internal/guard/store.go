// Package guard turns a URL into the marks of guarded resources, for operators who look at them and give a resource to another lock: the one
// place where the program knows all stores that have a guard.
//
// It writes no data and takes no steps of grants: that is for the programs that hold locks.
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

// A kind is one store: how its URL looks, and how its marks are reached.
type kind struct {
	scheme  string
	also    []string // other schemes, such as one for TLS
	example string
	// parse fills in the rest of a Store. It does no I/O.
	parse func(*Store) error
	// open returns the marks and what gives up the connection.
	open func(context.Context, Store) (fence.Resetter, func(), error)
}

// kinds are all stores. A new one is a line here and a file of its own.
var kinds = []*kind{&files, &directory, &postgres, &redis, &etcd, &bucket}

func kindOf(scheme string) *kind {
	for _, k := range kinds {
		if k.scheme == scheme || slices.Contains(k.also, scheme) {
			return k
		}
	}
	return nil
}

// Examples are a URL of each store.
func Examples() (all []string) {
	for _, k := range kinds {
		all = append(all, k.example)
	}
	return all
}

// A Store says where marks are. [Parse] makes it.
type Store struct {
	kind *kind
	text string
	path string      // of files
	url  backend.URL // of a server
	// marks is how the program that writes has named the place: a prefix of keys or a table. Empty: as the guard does by default.
	marks string
	// Connect bounds how long a server that does not answer is tried. Zero: as its client does by default.
	Connect time.Duration
}

// Scheme is what the URL of the store begins with, such as "redis".
func (s Store) Scheme() string { return s.kind.scheme }

// Parse reads the URL of a store. marks is the prefix of the keys or the table where a guard was told to keep them, empty for the default. An
// error says what is wrong, and never shows a password.
func Parse(text, marks string) (Store, error) {
	scheme, _, found := strings.Cut(text, "://")
	if !found {
		return Store{}, fmt.Errorf("want a URL such as %s", strings.Join(Examples(), " or "))
	}
	k := kindOf(scheme)
	if k == nil {
		return Store{}, fmt.Errorf("unknown scheme %s: want a URL such as %s", lockstep.Excerpt(scheme), strings.Join(Examples(), " or "))
	}
	s := Store{kind: k, text: text, marks: marks}
	if err := k.parse(&s); err != nil {
		return Store{}, err
	}
	return s, nil
}

// parseServer is the parse of stores that are a backend of locks too.
func parseServer(s *Store) (err error) {
	s.url, err = backend.Parse(s.text)
	return err
}

// Marks are those of a store. Close gives up the connection.
type Marks struct {
	fence.Resetter
	// Close is called once, when no call is under way.
	Close func()
}

// Open returns the marks of the store. ctx bounds reaching a server that must be reached first, which is then
// [lockstep.ErrUnavailable]; others show that they are not there when they are asked.
func (s Store) Open(ctx context.Context) (Marks, error) {
	resetter, end, err := s.kind.open(ctx, s)
	if err != nil {
		return Marks{}, fmt.Errorf("%s: %w", s.kind.scheme, err)
	}
	return Marks{resetter, end}, nil
}
