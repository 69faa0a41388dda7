package storage

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What Compact forgets stays in Pebble's files until they are written anew, and Pebble writes a new write-ahead log over an old one
// that it has done with, whose end then stays. Purge sees to both.

// memTables is how many tables in memory Pebble has at most, and one less than the old logs that it keeps to write over.
const memTables = 4

// freshLogs makes Pebble's write-ahead logs new files while fresh is set, and removes those that it would write over.
type freshLogs struct {
	vfs.FS
	fresh *atomic.Bool
}

// ReuseForWrite implements vfs.FS.
func (f freshLogs) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if !f.fresh.Load() {
		return f.FS.ReuseForWrite(oldname, newname, category)
	}
	if err := f.FS.Remove(oldname); err != nil {
		return nil, err
	}
	return f.FS.Create(newname, category)
}

// Purge takes out of Pebble's files what was deleted or written over before. It may take seconds, and writes go on. The blocks that
// the file system frees are its own affair.
func (s *Store) Purge(ctx context.Context) (err error) {
	if err := s.Err(); err != nil {
		return err
	}
	defer rescue(&err)
	s.wal.fresh.Store(true)
	defer s.wal.fresh.Store(false)
	for range memTables + 2 { // each begins a new log
		if err := s.db.Flush(); err != nil {
			return fmt.Errorf("storage: purge: %w", err)
		}
	}
	if err := s.db.Compact(ctx, []byte{0}, []byte{0xff}, false); err != nil {
		return fmt.Errorf("storage: purge: %w", err)
	}
	return nil
}

// PurgeDue reports whether RememberPurge was called last with true.
func (s *Store) PurgeDue() (bool, error) {
	v, err := s.note([]byte{prefixPurge})
	return len(v) == 1 && v[0] == 1, err
}

// RememberPurge notes durably whether a Purge is due: the log, or a snapshot that is kept, has what is to be forgotten.
func (s *Store) RememberPurge(due bool) error {
	v := []byte{0}
	if due {
		v[0] = 1
	}
	return s.remember([]byte{prefixPurge}, v)
}
