// Package account keeps the accounts of a demo in a real store: files, PostgreSQL, Redis or S3.
// Each account is kept twice, plain and behind the guard of that store, to show what the guard
// does.
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

// Opening is the balance of an account before the first write.
const Opening = 100

// An Account has a balance. It is safe for concurrent use.
type Account interface {
	// Enter announces that the holder of this grant is at work. It must precede the holder's first
	// Read.
	Enter(ctx context.Context, g fence.Grant) error
	// Read returns the balance.
	Read(ctx context.Context) (int, error)
	// Write sets the balance for the holder of this grant. A guarded account rejects a grant that
	// is not the latest: see [fence.Refused].
	Write(ctx context.Context, g fence.Grant, balance int) error
}

// A Pair is one account, kept twice.
type Pair struct {
	Plain   Account // accepts every write
	Guarded Account
}

// A kind is one kind of store.
type kind struct {
	name  string // also the scheme of its URLs
	shown string // its name in messages
	start func(ctx context.Context, dir string) (*Store, error)
	open  func(ctx context.Context, url, name string) (Pair, error)
}

var kinds = []kind{
	{"file", "files", startFiles, openFiles},
	{"postgres", "PostgreSQL", startPostgres, openPostgres},
	{"redis", "Redis", startRedis, openRedis},
	{"s3", "S3 (versitygw)", startS3, openS3},
}

// Kinds returns the names of the stores. The first one needs no server.
func Kinds() (all []string) {
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return all
}

// A Store is a store that the demo started. It runs until Close.
type Store struct {
	Name  string // such as "PostgreSQL"
	URL   string // for [Open]
	Close func()
}

// Start starts a store of the given kind, with its data below dir.
func Start(ctx context.Context, name, dir string) (*Store, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil, fmt.Errorf("account: unknown store %q: must be one of %s", name, strings.Join(Kinds(), ", "))
	}
	s, err := kinds[i].start(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("account: start %s: %w", kinds[i].shown, err)
	}
	s.Name = kinds[i].shown
	return s, nil
}

// Open opens the account of this name in a running store. Its connections last as long as the
// process.
func Open(ctx context.Context, url, name string) (Pair, error) {
	scheme, _, _ := strings.Cut(url, "://")
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == scheme })
	if i < 0 {
		return Pair{}, fmt.Errorf("account: unknown store %q", scheme)
	}
	p, err := kinds[i].open(ctx, url, name)
	if err != nil {
		return Pair{}, fmt.Errorf("account: open %s: %w", kinds[i].shown, err)
	}
	return p, nil
}

// balance parses what an account stores.
func balance(stored []byte) (int, error) { return strconv.Atoi(string(stored)) }

// stored formats what an account stores.
func stored(balance int) []byte { return []byte(strconv.Itoa(balance)) }

// unguarded implements Enter for an account that ignores grants.
type unguarded struct{}

func (unguarded) Enter(context.Context, fence.Grant) error { return nil }

// A guarded account is stored behind a guard that also keeps the data.
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

// opened returns the balance that was read, or Opening if nothing was ever written.
func opened(content []byte, err error) (int, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return Opening, nil
	}
	if err != nil {
		return 0, err
	}
	return balance(content)
}
