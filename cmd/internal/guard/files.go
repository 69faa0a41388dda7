package guard

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/filefence"
)

// files are guarded data files, each with its mark next to it. The store is the directory, and the
// resource is the name of a file in it.
var files = kind{
	scheme:  "file",
	example: "file:///var/lib/billing",
	parse:   parsePath,
	open: func(_ context.Context, s Store) (fence.Resetter, func(), error) {
		return folder{s.path}, func() {}, nil
	},
}

// directory is a directory of marks only, for resources with any name.
var directory = kind{
	scheme:  "dir",
	example: "dir:///var/lib/billing/marks",
	parse:   parsePath,
	open: func(_ context.Context, s Store) (fence.Resetter, func(), error) {
		d, err := filefence.OpenDir(s.path, filefence.Config{})
		return d, func() {}, err
	},
}

func parsePath(s *Store) error {
	u, err := url.Parse(s.text)
	if err != nil || u.Host != "" || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(u.Path) {
		return fmt.Errorf("must be the absolute path of a directory, such as %s", s.kind.example)
	}
	if s.marks != "" {
		return fmt.Errorf("%s:// has neither a key prefix nor a table: its marks are where the URL says", s.kind.scheme)
	}
	s.path = u.Path
	return nil
}

// A folder is a directory of guarded files. It is the [fence.Resetter] for all of them.
type folder struct{ path string }

func (f folder) file(resource string) (*filefence.File, error) {
	if !filepath.IsLocal(resource) {
		return nil, &lockstep.InvalidError{
			Field: "resource", Value: lockstep.Excerpt(resource), Rule: "must be the path of a file in the directory of the store, without \"..\"",
		}
	}
	return filefence.Open(filepath.Join(f.path, resource), filefence.Config{})
}

// Mark implements [fence.Resetter].
func (f folder) Mark(ctx context.Context, resource string) (fence.Mark, error) {
	file, err := f.file(resource)
	if err != nil {
		return fence.Mark{}, err
	}
	return file.Mark(ctx)
}

// Reset implements [fence.Resetter].
func (f folder) Reset(ctx context.Context, resource string, from, to fence.Mark) error {
	file, err := f.file(resource)
	if err != nil {
		return err
	}
	return file.Reset(ctx, from, to)
}
