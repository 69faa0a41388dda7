package filefence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/lockstep-dev/lockstep/fence"
)

// A Dir is a [fence.Guard] that keeps its marks in a directory and stores them on disk before it
// admits a step. It is safe for concurrent use, also together with other Dirs for the same
// directory, in this process and in others. It needs no Close.
//
// Each resource has one file of less than 2 KiB for its mark, named by the SHA-256 of the resource
// and never removed. Another 256 files are the ones that processes lock. A step costs two disk
// syncs if it changes the mark, and one if it does not.
type Dir struct {
	path     string
	turns    [256]*turn // indexed by the first byte of the hash
	observer fence.Observer
}

var (
	_ fence.Guard    = (*Dir)(nil)
	_ fence.Resetter = (*Dir)(nil)
)

// OpenDir returns the guard whose marks are in the directory at path, which must exist and
// should hold nothing else. [Config].Perm is not used. The errors are those of [Open].
func OpenDir(path string, cfg Config) (*Dir, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	path, err = directory(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, observer: cfg.Observer}
	for i := range d.turns {
		d.turns[i] = newTurn(filepath.Join(path, fmt.Sprintf("%02x.lock", i)), cfg.Wait)
	}
	return d, nil
}

func (d *Dir) slot(resource string) (*slot, error) {
	if err := fence.CheckResource(resource); err != nil {
		return nil, err
	}
	hash := sha256.Sum256([]byte(resource))
	return &slot{
		mark:     filepath.Join(d.path, hex.EncodeToString(hash[:])+".fence"),
		resource: resource,
		turn:     d.turns[hash[0]],
	}, nil
}

// Admit implements [fence.Guard].
func (d *Dir) Admit(ctx context.Context, resource string, g fence.Grant, s fence.Step) error {
	err := d.in(ctx, resource, func(at *slot, now record) error {
		next, err := now.Mark.Admit(g, s)
		if err != nil {
			return err
		}
		return at.raise(now, next)
	})
	fence.Tell(d.observer, resource, g, s, err)
	return err
}

// Mark implements [fence.Resetter].
func (d *Dir) Mark(ctx context.Context, resource string) (fence.Mark, error) {
	at, err := d.slot(resource)
	if err != nil {
		return fence.Mark{}, err
	}
	now, err := at.present(ctx)
	return now.Mark, err
}

// Reset implements [fence.Resetter].
func (d *Dir) Reset(ctx context.Context, resource string, from, to fence.Mark) error {
	at, err := d.slot(resource)
	if err != nil {
		return err
	}
	return at.reset(ctx, from, to)
}

func (d *Dir) in(ctx context.Context, resource string, f func(*slot, record) error) error {
	at, err := d.slot(resource)
	if err != nil {
		return err
	}
	return at.inTurn(ctx, func(now record) error { return f(at, now) })
}
