package s3fence

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// Read returns the data. It is an error that wraps [fs.ErrNotExist] when there are none.
func (g *Guard) Read(ctx context.Context, resource string) ([]byte, error) {
	data, err := g.read(ctx, resource)
	return data, named("read", resource, err)
}

// maxReads bounds how often a read follows the manifest. It does so again when two writes or a
// deletion came in between.
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
		case key == last: // not ErrNotExist: there should be data
			return nil, fmt.Errorf("the data are lost: the manifest refers to %s, and there is no such object", key)
		}
		last = key
	}
	return nil, fmt.Errorf("%w: %d times its data were replaced before they could be read", fence.ErrBusy, maxReads)
}

// Key is the key of the data, for a download of yours. The object never changes, and stays until
// the second write after its own, or a deletion. It is an error that wraps [fs.ErrNotExist] when
// there are no data.
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

// NewKey is a key that nobody else uses, for data that you upload yourself, such as a large object
// in parts, before [Guard.Commit].
func (g *Guard) NewKey(resource string, grant fence.Grant) string {
	return keysOf(g.cfg.Prefix, resource).dataKey(grant.Token, rand.Text())
}

// Commit makes the object at key, which [Guard.NewKey] gave for this resource and grant, the data
// of the resource. s is [fence.Write] or [fence.WriteOnce]. The object must have been uploaded,
// must not change any more, and is committed once. When the commit is refused, the object stays
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

// Sweep removes what writers that died or were cut off have left of the resource, and returns how
// many objects it removed, also with an error. It may run at any time, beside writers and readers:
// it removes the data that the manifest does not refer to and whose token is below the mark, which
// nobody can commit any more. What is left of the newest token is removed once there is a newer
// one, and after a [Guard.Reset] to lower tokens, what is left from before it once they have passed
// it.
//
// It takes two requests for each 1000 objects of the resource, and one for each that it removes.
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
		m, _, err := g.store.load(ctx, k) // after the list: no object of the list that is unneeded now will be needed later
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
