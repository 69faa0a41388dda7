package s3fence

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// Read returns the data, or an error that wraps [fs.ErrNotExist] if there is none.
func (g *Guard) Read(ctx context.Context, resource string) ([]byte, error) {
	data, err := g.read(ctx, resource)
	return data, named("read", resource, err)
}

// maxReads bounds how often a read follows the manifest. It starts over if two writes or a deletion
// came in between.
const maxReads = 16

func (g *Guard) read(ctx context.Context, resource string) ([]byte, error) {
	last := ""
	for range maxReads {
		key, err := g.key(ctx, resource)
		if err != nil {
			return nil, err
		}
		data, _, err := g.store.get(ctx, key, maxObjectBytes)
		switch {
		case err == nil:
			return data, nil
		case !noSuchObject(err):
			return nil, failed(err)
		case key == last: // not ErrNotExist, since there should be data
			return nil, fmt.Errorf("the data are lost: the manifest refers to %s, and there is no such object", key)
		}
		last = key
	}
	return nil, fmt.Errorf("%w: %d times its data were replaced before they could be read", fence.ErrBusy, maxReads)
}

// Key returns the key of the data, for downloading it yourself. The object never changes, and stays
// until the second write after its own, or a deletion. If there is no data, the error wraps
// [fs.ErrNotExist].
func (g *Guard) Key(ctx context.Context, resource string) (string, error) {
	key, err := g.key(ctx, resource)
	return key, named("find the data of", resource, err)
}

func (g *Guard) key(ctx context.Context, resource string) (string, error) {
	if err := CheckResource(resource); err != nil {
		return "", err
	}
	m, _, err := g.store.load(ctx, keysOf(g.cfg.Prefix, resource))
	if err == nil && m.Data == "" {
		err = fs.ErrNotExist
	}
	return m.Data, err
}

// ManifestKey is the key of the resource's manifest, for readers in other languages: the member
// "data" of its JSON is the key of the data.
func (g *Guard) ManifestKey(resource string) string { return keysOf(g.cfg.Prefix, resource).manifest }

// NewKey returns a key that no one else uses, for data that you upload yourself before
// [Guard.Commit], such as a large object in parts.
func (g *Guard) NewKey(resource string, grant fence.Grant) string {
	return keysOf(g.cfg.Prefix, resource).dataKey(grant.Token, rand.Text())
}

// Commit makes the object at key, which [Guard.NewKey] returned for this resource and grant, the
// data of the resource. s is [fence.Write] or [fence.WriteOnce]. The object must be uploaded, must
// not change afterwards, and can be committed only once. If the commit is refused, the object stays
// until it is swept: see [Guard.Sweep].
func (g *Guard) Commit(ctx context.Context, resource string, grant fence.Grant, s fence.Step, key string) error {
	broken := func(field, value, rule string) error {
		return named("commit", resource, &lockstep.InvalidError{Field: field, Value: lockstep.Excerpt(value), Rule: rule})
	}
	if s != fence.Write && s != fence.WriteOnce {
		return broken("step", s.String(), "must be Write or WriteOnce")
	}
	if token, ours := keysOf(g.cfg.Prefix, resource).token(key); !ours || token != grant.Token {
		return broken("key", key, "must be of NewKey for this resource and token")
	}
	return g.step(ctx, resource, grant, s, plan{change: change{replaceData, key}, prepare: func(ctx context.Context) error {
		there, err := g.store.exists(ctx, key)
		if err == nil && !there {
			return &lockstep.InvalidError{Field: "key", Value: lockstep.Excerpt(key), Rule: "must be that of an object that was uploaded"}
		}
		return failed(err)
	}})
}

// Sweep removes the objects of the resource left behind by writers that died or were cut off, and
// returns how many it removed, even with an error. It may run at any time, concurrently with
// writers and readers: it removes data that the manifest does not refer to and whose token is below
// the mark, which can no longer be committed. Leftovers of the newest token are removed once there
// is a newer one; after a [Guard.Reset] to lower tokens, leftovers from before it are removed once
// tokens have passed theirs.
//
// It takes two requests per 1000 objects of the resource, and one per object removed.
func (g *Guard) Sweep(ctx context.Context, resource string) (removed int, err error) {
	removed, err = g.sweep(ctx, resource)
	return removed, named("sweep", resource, err)
}

func (g *Guard) sweep(ctx context.Context, resource string) (removed int, err error) {
	if err := CheckResource(resource); err != nil {
		return 0, err
	}
	k := keysOf(g.cfg.Prefix, resource)
	err = g.store.list(ctx, k.data, func(found []string) error {
		// After the list: an object of the list that is not needed now will not be needed later.
		m, _, err := g.store.load(ctx, k)
		if err != nil {
			return err
		}
		for _, key := range found {
			if token, ours := k.token(key); !ours || token >= m.Mark.Token || m.refersTo(key) {
				continue
			}
			if err := g.store.remove(ctx, key); err != nil {
				return failed(err)
			}
			removed++
		}
		return nil
	})
	return removed, err
}
