package filefence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

// A slot is one mark on disk, with the data file that belongs to it, if any. Its methods are called
// during a turn, except inTurn, present, untouched and reset.
type slot struct {
	mark string // path
	data string // path; empty for a mark alone
	// resource is the resource that the mark belongs to; empty when the data file identifies it.
	resource string
	turn     *turn
	perm     fs.FileMode // of new data

	// at lets a test crash at a given point of a write: an error ends the write without any
	// cleanup, as killing the process would. Nil outside tests.
	at func(p point) error
}

// A point is a moment in a write where a crash has its own consequences.
type point string

const (
	staged    point = "data stored, mark not raised"
	committed point = "mark raised, data not renamed"
	placed    point = "data renamed, name not synced"
)

func (s *slot) pass(p point) error {
	if s.at == nil {
		return nil
	}
	return s.at(p)
}

// format is the number of the layout that the package doc describes. A mark of another format is
// not read.
const format = 1

// A record is the contents of a mark file.
type record struct {
	Format int        `json:"format"`
	Mark   fence.Mark `json:"mark"`
	// Version counts the committed changes of the data.
	Version uint64 `json:"version"`
	// Deleted is set when the last change was a deletion.
	Deleted  bool   `json:"deleted,omitempty"`
	Resource string `json:"resource,omitempty"`
}

// inTurn calls f with the contents on disk while no one else is in the slot, after finishing what a
// dead writer left unfinished.
func (s *slot) inTurn(ctx context.Context, f func(record) error) error {
	leave, err := s.turn.take(ctx)
	if err != nil {
		return err
	}
	defer leave()
	now, err := s.load()
	if err != nil {
		return err
	}
	if err := s.repair(now); err != nil {
		return fmt.Errorf("finish an earlier write: %w", err)
	}
	return f(now)
}

// present returns what is on disk. If no grant has been here it leaves nothing behind: a lock file
// created by an operator's command could lock the writers out.
func (s *slot) present(ctx context.Context) (now record, err error) {
	if s.untouched() {
		return record{Format: format, Resource: s.resource}, nil
	}
	err = s.inTurn(ctx, func(found record) error {
		now = found
		return nil
	})
	return now, err
}

// untouched reports whether no grant has been here. It looks for both files, since a file that was
// moved has its mark but no lock file.
func (s *slot) untouched() bool {
	for _, path := range []string{s.turn.path, s.mark} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

func (s *slot) load() (record, error) {
	text, err := os.ReadFile(s.mark)
	if errors.Is(err, fs.ErrNotExist) {
		return record{Format: format, Resource: s.resource}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read mark: %w", err)
	}
	var now record
	if err := json.Unmarshal(text, &now); err != nil {
		return record{}, fmt.Errorf("mark %s is damaged, so nobody is admitted: %w", s.mark, err)
	}
	if now.Format != format || now.Resource != s.resource || !now.Mark.Bound() {
		return record{}, fmt.Errorf("mark %s has format %d and is of resource %q and lock %q, want format %d, resource %q and a lock: nobody is admitted",
			s.mark, now.Format, now.Resource, now.Mark.Lock, format, s.resource)
	}
	return now, nil
}

// stage is where the data with this number waits for its mark.
func (s *slot) stage(version uint64) string { return s.mark + "." + strconv.FormatUint(version, 10) }

// raise stores the mark and leaves the data.
func (s *slot) raise(now record, next fence.Mark) error {
	if next == now.Mark {
		// The mark is there, but its writer may have died before its name was on disk.
		return s.syncNames()
	}
	now.Mark = next
	return s.commit(now)
}

// replace stores the mark and new data.
func (s *slot) replace(now record, next fence.Mark, data []byte) error {
	now.Mark, now.Deleted = next, false
	return s.change(now, data, s.dataMode())
}

// remove stores the mark and deletes the data. An empty file takes the place of new data and shows
// that the deletion is not finished.
func (s *slot) remove(now record, next fence.Mark) error {
	now.Mark, now.Deleted = next, true
	return s.change(now, nil, mode{bits: s.perm})
}

// change stores the mark and then what it decides. If storing the mark fails, the staged data
// stays: it is needed if the failed rename did happen after all.
func (s *slot) change(next record, data []byte, m mode) error {
	next.Version++
	stage := s.stage(next.Version)
	if err := s.prepare(stage, data, m); err != nil {
		os.Remove(stage) // harmless if left, but it takes space, which may be the problem
		return fmt.Errorf("store data: %w", err)
	}
	if err := s.pass(staged); err != nil {
		return err
	}
	if err := s.commit(next); err != nil {
		return err
	}
	if err := s.pass(committed); err != nil {
		return err
	}
	if err := s.finish(next); err != nil {
		return fmt.Errorf("%w: %w", lockstep.ErrUncertain, err)
	}
	return nil
}

// prepare stages the data, with its name on disk: if the mark survived a power cut and the data did
// not, the write would look finished.
func (s *slot) prepare(stage string, data []byte, m mode) error {
	if err := writeFile(stage, data, m); err != nil {
		return err
	}
	return s.syncNames()
}

// commit replaces the mark. An error before the rename changed nothing; after it the
// outcome is unknown until the next step.
func (s *slot) commit(next record) error {
	text, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("store mark: %w", err)
	}
	fresh := s.mark + ".new"
	if err := writeFile(fresh, append(text, '\n'), mode{bits: 0o644}); err != nil {
		return fmt.Errorf("store mark: %w", err)
	}
	if err := os.Rename(fresh, s.mark); err != nil {
		return fmt.Errorf("store mark: %w", err)
	}
	if err := s.syncNames(); err != nil {
		return fmt.Errorf("%w: sync mark: %w", lockstep.ErrUncertain, err)
	}
	return nil
}

// repair completes what the mark of a dead writer has decided. Here too the mark goes first: the
// writer may have died before the mark's name was on disk.
func (s *slot) repair(now record) error {
	if s.data == "" || now.Version == 0 {
		return nil
	}
	_, err := os.Lstat(s.stage(now.Version))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.syncNames()
	}
	if err != nil {
		return err
	}
	return s.finish(now)
}

// finish carries out what the mark has decided, from the data staged under its number.
func (s *slot) finish(now record) error {
	stage := s.stage(now.Version)
	if now.Deleted {
		return s.finishRemove(stage)
	}
	if err := os.Rename(stage, s.data); err != nil {
		return err
	}
	if err := s.pass(placed); err != nil {
		return err
	}
	return s.syncNames()
}

func (s *slot) finishRemove(stage string) error {
	if err := os.Remove(s.data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.pass(placed); err != nil {
		return err
	}
	if err := s.syncNames(); err != nil {
		return err
	}
	return os.Remove(stage)
}

// reset gives the slot to another lock.
func (s *slot) reset(ctx context.Context, from, to fence.Mark) error {
	return s.inTurn(ctx, func(now record) error {
		next, err := now.Mark.Reset(from, to)
		if err != nil {
			return err
		}
		return s.raise(now, next)
	})
}

// A mode says which permission bits a file gets.
type mode struct {
	bits  fs.FileMode
	exact bool // regardless of the umask
}

// dataMode is the mode of the data, or the one it gets when new.
func (s *slot) dataMode() mode {
	if info, err := os.Stat(s.data); err == nil {
		return mode{bits: info.Mode().Perm(), exact: true}
	}
	return mode{bits: s.perm}
}

func (s *slot) syncNames() error { return syncDirectory(filepath.Dir(s.mark)) }

// writeFile writes the data to a file at path; the data is on disk when it returns.
func writeFile(path string, data []byte, m mode) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a dead writer
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, m.bits)
	if err != nil {
		return err
	}
	defer f.Close() // for the error returns below; after success the second Close does nothing
	if m.exact {
		if err := f.Chmod(m.bits); err != nil {
			return err
		}
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// syncDirectory stores the names in a directory on disk.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
