package filefence

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// DefaultWait is how long a step waits for its turn by default.
const DefaultWait = 10 * time.Second

// Config adjusts a [File] or a [Dir]. The zero value is ready for use.
type Config struct {
	// Wait bounds the time that a step waits for other steps on the same file. Default:
	// [DefaultWait]. It should not exceed the TTL of the lock, since a holder that waits longer has
	// lost it anyway.
	Wait time.Duration

	// Perm are the permission bits of a data file that is new, minus the process's umask. Later
	// versions keep the bits that the file has. Default: 0o644.
	Perm fs.FileMode

	// Observer is notified of each decision. Default: none.
	Observer fence.Observer
}

func (c Config) withDefaults() (Config, error) {
	if c.Wait == 0 {
		c.Wait = DefaultWait
	}
	if c.Perm == 0 {
		c.Perm = 0o644
	}
	switch {
	case c.Wait < 0:
		return c, &lockstep.InvalidError{Field: "wait", Value: c.Wait.String(), Rule: "must not be negative"}
	case c.Perm&^fs.ModePerm != 0 || c.Perm&0o600 != 0o600:
		return c, &lockstep.InvalidError{Field: "perm", Value: c.Perm.String(), Rule: "must be permission bits that let the owner read and write"}
	}
	return c, nil
}

// A File is a guarded data file. It keeps no file open between steps and needs no Close. It is safe
// for concurrent use, also together with other Files for the same path, in this process and in
// others.
type File struct {
	slot     slot
	observer fence.Observer
}

// Open returns the guarded file at path. The directory must exist; the file need not. Data that is
// already there counts as written by no one, and the first grant may replace it. A path that cannot
// be guarded is [lockstep.ErrInvalid]; an operating system or file system that cannot enforce the
// rules is [lockstep.ErrUnsupported].
func Open(path string, cfg Config) (*File, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	path, err = guardable(path)
	if err != nil {
		return nil, err
	}
	return &File{
		slot: slot{
			mark: path + ".fence",
			data: path,
			turn: newTurn(path+".fence.lock", cfg.Wait),
			perm: cfg.Perm,
		},
		observer: cfg.Observer,
	}, nil
}

// guardable returns the canonical spelling of path, under which its files are kept.
func guardable(path string) (string, error) {
	refuse := func(rule string) (string, error) {
		return "", &lockstep.InvalidError{Field: "path", Value: lockstep.Excerpt(path), Rule: rule}
	}
	base := filepath.Base(path)
	switch {
	case path == "":
		return refuse("must not be empty")
	case base == "." || base == ".." || base == string(filepath.Separator):
		return refuse("must name a file")
	case strings.HasSuffix(base, ".fence") || strings.Contains(base, ".fence."):
		return refuse(`must not end in ".fence" or contain ".fence.": those are the names of marks`)
	}
	dir, err := directory(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, base)
	switch info, err := os.Lstat(path); {
	case err == nil && !info.Mode().IsRegular():
		return refuse("must be a regular file, and no link: its other name would have another mark")
	case err != nil && !os.IsNotExist(err):
		return "", fmt.Errorf("open guarded file: %w", err)
	}
	return path, nil
}

// directory returns the directory's own path, and ensures that guards work there.
func directory(dir string) (string, error) {
	if !flockWorks {
		return "", fmt.Errorf("%w: guarded files need flock(2), which this operating system does not have", lockstep.ErrUnsupported)
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("open guarded directory: %w", err)
	}
	return dir, checkLocal(dir)
}

// Enter raises the mark to the grant's token and changes no data. Call it before the first
// read of a grant.
func (f *File) Enter(ctx context.Context, g fence.Grant) error {
	return f.do(ctx, g, fence.Enter, func(now record, next fence.Mark) error { return f.slot.raise(now, next) })
}

// Write replaces the data. A nil error means that the data is on disk.
func (f *File) Write(ctx context.Context, g fence.Grant, data []byte) error {
	return f.do(ctx, g, fence.Write, f.replaceBy(data))
}

// WriteOnce replaces the data unless the grant has written before, in which case it returns
// [fence.ErrAlready].
func (f *File) WriteOnce(ctx context.Context, g fence.Grant, data []byte) error {
	return f.do(ctx, g, fence.WriteOnce, f.replaceBy(data))
}

func (f *File) replaceBy(data []byte) func(record, fence.Mark) error {
	return func(now record, next fence.Mark) error { return f.slot.replace(now, next, data) }
}

// Delete removes the data and keeps the mark, so that an older holder cannot bring it back. It
// counts as a write. Deleting a file that has no data is not an error.
func (f *File) Delete(ctx context.Context, g fence.Grant) error {
	return f.do(ctx, g, fence.Write, func(now record, next fence.Mark) error { return f.slot.remove(now, next) })
}

// do takes one step: it waits for its turn, asks the mark, and lets change do the rest.
func (f *File) do(ctx context.Context, g fence.Grant, s fence.Step, change func(record, fence.Mark) error) error {
	err := f.slot.inTurn(ctx, func(now record) error {
		next, err := now.Mark.Admit(g, s)
		if err != nil {
			return err
		}
		return change(now, next)
	})
	fence.Tell(f.observer, f.slot.data, g, s, err)
	return f.named(s.String(), err)
}

// Read returns the data, or an error that wraps [fs.ErrNotExist] if there is none. It finishes an
// interrupted write; plain reads of the file do not, and may see the version before it.
func (f *File) Read(ctx context.Context) ([]byte, error) {
	var data []byte
	err := f.slot.inTurn(ctx, func(record) error {
		read, err := os.ReadFile(f.slot.data)
		data = read
		return err
	})
	return data, f.named("read", err)
}

// Mark returns the current mark, which is zero when no grant has reached the file.
func (f *File) Mark(ctx context.Context) (fence.Mark, error) {
	now, err := f.slot.present(ctx)
	return now.Mark, f.named("read mark of", err)
}

// Reset gives the file to another lock or backend, as [fence.Mark.Reset] defines. The data stays.
func (f *File) Reset(ctx context.Context, from, to fence.Mark) error {
	return f.named("reset", f.slot.reset(ctx, from, to))
}

func (f *File) named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, f.slot.data, err)
}
