package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// Names in the directory.
const (
	lockName      = "LOCK"
	identityName  = "IDENTITY"
	createName    = "CREATING" // exists while the directory is being created
	walName       = "WAL"
	logName       = "log"
	snapshotsName = "snapshots"
)

// A dirState is what was found where the directory should be.
type dirState int

const (
	dirMissing    dirState = iota // or empty
	dirUnfinished                 // its creation was interrupted before anything was stored
	dirReady
)

func (s *Store) path(name string) string { return s.fs.PathJoin(s.dir, name) }

func (s *Store) refuse(kind error, reason, remedy string, cause error) error {
	return &RefusedError{Dir: s.dir, Kind: kind, Reason: reason, Remedy: remedy, Cause: cause}
}

// inspect examines the directory without changing anything.
func (s *Store) inspect() (dirState, error) {
	info, err := s.fs.Stat(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dirMissing, nil
	}
	if err != nil {
		return 0, s.refuse(ErrAccess, "cannot be accessed", "check the path and its permissions", err)
	}
	if !info.IsDir() {
		return 0, s.refuse(ErrAccess, "is a file, not a directory", "give the path of a directory", nil)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		s.log.Warn("other users can access the data directory; use mode 0700",
			"dir", s.dir, "mode", fmt.Sprintf("%04o", perm))
	}
	names, err := s.fs.List(s.dir)
	if err != nil {
		return 0, s.refuse(ErrAccess, "cannot be read", "check its permissions", err)
	}
	return s.classify(names)
}

func (s *Store) classify(names []string) (dirState, error) {
	if slices.Contains(names, replacingName) && !s.replacing {
		return 0, s.refuse(ErrDamaged, "was being replaced by that of a new cluster, which was interrupted",
			"start it again with --force-new-cluster", nil)
	}
	if slices.Contains(names, identityName) {
		return dirReady, nil
	}
	if slices.Contains(names, createName) {
		return dirUnfinished, nil
	}
	others := slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return n == lockName || n == createName+tmpSuffix || n == "lost+found" || s.replacing && ofReplacement(n)
	})
	if len(others) == 0 {
		return dirMissing, nil
	}
	if slices.Contains(others, logName) {
		return 0, s.refuse(ErrDamaged, "has a log but no IDENTITY", remedyDamaged, nil)
	}
	slices.Sort(others)
	return 0, s.refuse(ErrForeign, fmt.Sprintf("is not empty and not a lockstep directory: it contains %q", others[0]),
		"give an empty or missing directory", nil)
}

// acquire creates the directory if needed and locks it.
func (s *Store) acquire() error {
	remedy := "make it writable for the user that runs the server, or use another directory"
	if err := s.fs.MkdirAll(s.dir, 0o700); err != nil {
		return s.refuse(ErrAccess, "cannot be created", remedy, err)
	}
	lock, err := s.fs.Lock(s.path(lockName))
	if e := new(fs.PathError); errors.As(err, &e) {
		return s.refuse(ErrAccess, "cannot be written", remedy, err)
	}
	if err != nil {
		reason := "is used by another process"
		if pid := lockHolder(s.path(lockName), err); pid > 0 {
			reason += fmt.Sprintf(", pid %d", pid)
		}
		return s.refuse(ErrLocked, reason, "stop that process first, or use another directory", err)
	}
	s.lock = lock
	return nil
}

// clear removes what an interrupted creation left behind.
func (s *Store) clear() error {
	for _, name := range []string{logName, snapshotsName, walName, walName + tmpSuffix, identityName + tmpSuffix} {
		if err := s.fs.RemoveAll(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s.refuse(ErrAccess, "cannot be written", "check its permissions", err)
		}
	}
	return nil
}

// create starts creating a directory. finishCreate ends it; a crash between the two leaves the
// marker, and the next start begins again.
func (s *Store) create(random io.Reader) error {
	id, err := newInstance(random)
	if err != nil {
		return err
	}
	s.id.instance = id
	if err := writeFile(s.fs, s.dir, createName, nil); err != nil {
		return s.refuse(ErrAccess, "cannot be written", "check its permissions and the free space", err)
	}
	for _, name := range []string{logName, snapshotsName} {
		if err := s.fs.MkdirAll(s.path(name), 0o700); err != nil {
			return s.refuse(ErrAccess, "cannot be written", "check its permissions and the free space", err)
		}
	}
	return syncDir(s.fs, s.dir)
}

func (s *Store) finishCreate() error {
	if err := s.db.Set([]byte{prefixIdentity}, s.id.encode(), pebble.Sync); err != nil {
		return fmt.Errorf("storage: write the identity: %w", err)
	}
	if err := writeFile(s.fs, s.dir, identityName, s.id.encode()); err != nil {
		return fmt.Errorf("storage: write the identity: %w", err)
	}
	if err := s.fs.Remove(s.path(createName)); err != nil {
		return fmt.Errorf("storage: finish the directory: %w", err)
	}
	if parent := s.fs.PathDir(s.dir); parent != s.dir {
		if err := syncDir(s.fs, parent); err != nil { // best effort: the parent may not be readable
			s.log.Debug("parent directory not synced", "dir", parent, "err", err)
		}
	}
	return syncDir(s.fs, s.dir)
}

// readIdentity refuses a directory that isn't ours.
func (s *Store) readIdentity() error {
	text, err := readFile(s.fs, s.path(identityName), identityLimit)
	if err != nil {
		return s.refuse(ErrAccess, "IDENTITY cannot be read", "check its permissions", err)
	}
	id, err := decodeIdentity(text)
	if newer := (errNewerFormat{}); errors.As(err, &newer) {
		return s.refuse(ErrNewer, newer.Error(), "start the version that wrote it, or a newer one", nil)
	}
	if err != nil {
		return s.refuse(ErrDamaged, err.Error(), remedyDamaged, nil)
	}
	if id.cluster != s.id.cluster {
		return s.refuse(ErrForeign, fmt.Sprintf("belongs to cluster %s, but this node is in cluster %s", id.cluster, s.id.cluster),
			"use the directory of this node, or the initial cluster that the directory was created with", nil)
	}
	if id.node != s.id.node {
		return s.refuse(ErrForeign, fmt.Sprintf("belongs to node %s, this node is %s", s.describe(id.node), s.describe(s.id.node)),
			"use the directory of this node, or start it under the name that the directory was created with", nil)
	}
	s.id = id
	return nil
}

// describe returns a node's name if it is known, else its id.
func (s *Store) describe(node uint64) string {
	if s.nodeName != nil {
		if name := s.nodeName(node); name != "" {
			return name
		}
	}
	return fmt.Sprintf("%016x", node)
}

// openLog opens Pebble.
func (s *Store) openLog(create bool) (err error) {
	if create {
		return s.createLog()
	}
	if err := s.checkWAL(); err != nil {
		return err
	}
	s.db, err = s.openPebble(false)
	if err != nil {
		return s.explainPebble(err)
	}
	// The log and the file must agree: one of them may come from elsewhere.
	v, closer, err := s.db.Get([]byte{prefixIdentity})
	if err != nil {
		return s.refuse(ErrDamaged, "the log has no identity", remedyDamaged, err)
	}
	defer closer.Close()
	if !bytes.Equal(v, s.id.first().encode()) {
		return s.refuse(ErrForeign, "the log belongs to another directory", "put back the log that belongs to IDENTITY", nil)
	}
	return nil
}

// createLog creates the Pebble instance, and opens it a second time: the first write-ahead log
// doesn't have the newest format yet, which is the one that shows damage.
func (s *Store) createLog() error {
	db, err := s.openPebble(true)
	if err != nil {
		return fmt.Errorf("storage: make the log: %w", err)
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("storage: make the log: %w", err)
	}
	if s.db, err = s.openPebble(false); err != nil {
		return fmt.Errorf("storage: make the log: %w", err)
	}
	return nil
}

func (s *Store) openPebble(create bool) (db *pebble.DB, err error) {
	defer rescue(&err)
	return pebble.Open(s.path(logName), s.options(create))
}

// Sizes of Pebble's caches. The log is written and, except at start, never read.
const (
	cacheBytes    = 4 << 20
	memTableBytes = 16 << 20
)

func (s *Store) options(create bool) *pebble.Options {
	return &pebble.Options{
		FS: freshLogs{s.fs, &s.wal.fresh},
		// At least FormatWALSyncChunks: it distinguishes damage in the middle of a WAL from a torn
		// tail.
		FormatMajorVersion:          pebble.FormatNewest,
		ErrorIfExists:               create,
		ErrorIfNotExists:            !create,
		CacheSize:                   cacheBytes,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: memTables,
		MaxOpenFiles:                256,
		Logger:                      pebbleLogger{s},
		EventListener:               s.listener(),
	}
}

// explainPebble says what an operator can do when Pebble refuses to open.
func (s *Store) explainPebble(err error) error {
	switch text := err.Error(); {
	case errors.Is(err, pebble.ErrDBDoesNotExist):
		return s.refuse(ErrDamaged, "the log is missing", remedyDamaged, err)
	case strings.Contains(text, "format major version"):
		return s.refuse(ErrNewer, "the log was written by a newer version", "start the version that wrote it, or a newer one", err)
	case errors.Is(err, fs.ErrPermission):
		return s.refuse(ErrAccess, "the log cannot be opened", "check the permissions of the directory and its files", err)
	default:
		return s.refuse(ErrDamaged, "the log cannot be opened"+s.locateDamage(), remedyDamaged, err)
	}
}
