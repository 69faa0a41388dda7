// Package account keeps the accounts of a demonstration in a store that people use: files, PostgreSQL, Redis or S3. Each account is
// kept twice, plain and behind the guard of that store, so that one can see what the guard is for.
package account

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-dev/lockstep/fence"
)

// Opening is the balance of an account that nobody has written.
const Opening = 100

// An Account has a balance. It is safe for concurrent use.
type Account interface {
	// Enter tells that the holder of this grant is at work. It comes before the holder's first Read.
	Enter(ctx context.Context, g fence.Grant) error
	// Read returns the balance.
	Read(ctx context.Context) (int, error)
	// Write sets the balance for the holder of this grant. A guarded account refuses one that is not the latest: see [fence.Refused].
	Write(ctx context.Context, g fence.Grant, balance int) error
}

// A Pair is one account, kept twice.
type Pair struct {
	Plain   Account // takes every write
	Guarded Account
}

// A kind is one kind of store.
type kind struct {
	name   string // what its URLs begin with, too
	shown  string // as people write it
	serves func(ctx context.Context, dir string) (*Store, error)
	opens  func(ctx context.Context, url, name string) (Pair, error)
}

var kinds = []kind{
	{"file", "files", startFiles, openFiles},
	{"postgres", "PostgreSQL", startPostgres, openPostgres},
	{"redis", "Redis", startRedis, openRedis},
	{"s3", "S3 (versitygw)", startS3, openS3},
}

// Kinds are the names of the stores, the one first that needs no server.
func Kinds() (all []string) {
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return all
}

// A Store is a store of the demonstration's own, until Close.
type Store struct {
	Name  string // such as "PostgreSQL"
	URL   string // what [Open] takes
	Close func()
}

// Start starts a store of a kind, with its data below dir.
func Start(ctx context.Context, name, dir string) (*Store, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil, fmt.Errorf("account: unknown store %q: want one of %s", name, strings.Join(Kinds(), ", "))
	}
	s, err := kinds[i].serves(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("account: start %s: %w", kinds[i].shown, err)
	}
	s.Name = kinds[i].shown
	return s, nil
}

// Open opens the account of this name in a store that runs. What it uses lasts as long as the process.
func Open(ctx context.Context, url, name string) (Pair, error) {
	scheme, _, _ := strings.Cut(url, "://")
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == scheme })
	if i < 0 {
		return Pair{}, fmt.Errorf("account: unknown store %q", scheme)
	}
	p, err := kinds[i].opens(ctx, url, name)
	if err != nil {
		return Pair{}, fmt.Errorf("account: open %s: %w", kinds[i].shown, err)
	}
	return p, nil
}

// balance reads what an account has stored.
func balance(stored []byte) (int, error) { return strconv.Atoi(string(stored)) }

// stored is what an account stores.
func stored(balance int) []byte { return []byte(strconv.Itoa(balance)) }

// unguarded is what an account has to say of grants that looks at none.
type unguarded struct{}

func (unguarded) Enter(context.Context, fence.Grant) error { return nil }

// A guarded account is data of its name behind a guard that keeps the data too.
type guarded struct {
	guard guard
	name  string
}

type guard interface {
	Enter(ctx context.Context, resource string, g fence.Grant) error
	Read(ctx context.Context, resource string) ([]byte, error)
	Write(ctx context.Context, resource string, g fence.Grant, data []byte) error
}

func (a guarded) Enter(ctx context.Context, g fence.Grant) error {
	return a.guard.Enter(ctx, a.name, g)
}

func (a guarded) Read(ctx context.Context) (int, error) { return opened(a.guard.Read(ctx, a.name)) }

func (a guarded) Write(ctx context.Context, g fence.Grant, balance int) error {
	return a.guard.Write(ctx, a.name, g, stored(balance))
}

// opened is the balance in what was read, where nothing was written too.
func opened(content []byte, err error) (int, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return Opening, nil
	}
	if err != nil {
		return 0, err
	}
	return balance(content)
}
