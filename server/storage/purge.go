package storage

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What Compact deletes stays in Pebble's files until they are rewritten, and Pebble reuses old
// write-ahead logs by overwriting them, so the end of an old one remains. Purge takes care of both.

// memTables is the maximum number of Pebble's memtables, and one less than the number of old logs
// that it keeps for reuse.
const memTables = 4

// freshLogs makes Pebble's write-ahead logs new files while fresh is set, and removes those that it
// would reuse.
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

// Purge removes from Pebble's files what was deleted or overwritten earlier. It may take seconds,
// and writes go on. What happens to the freed blocks is up to the file system.
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

// PurgeDue reports whether the last call of RememberPurge was with true.
func (s *Store) PurgeDue() (bool, error) {
	v, err := s.note([]byte{prefixPurge})
	return len(v) == 1 && v[0] == 1, err
}

// RememberPurge durably records whether a Purge is due: the log, or a kept snapshot, contains what
// is to be forgotten.
func (s *Store) RememberPurge(due bool) error {
	v := []byte{0}
	if due {
		v[0] = 1
	}
	return s.remember([]byte{prefixPurge}, v)
}
