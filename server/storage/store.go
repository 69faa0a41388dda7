package storage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Config configures Open.
type Config struct {
	Dir       string
	FS        vfs.FS // default: the machine's
	ClusterID string // not empty, no white space
	NodeID    uint64 // not zero
	// Origin is recorded in a directory that is created, one word: the backup that it is made from.
	// Default: none.
	Origin string
	// NodeName returns the name of a node with a known id, for errors; else "". Default: none is
	// known.
	NodeName func(id uint64) string
	// Replacing allows a directory whose content is being replaced; see [BeginReplace].
	Replacing bool
	// Random is the source of the instance id. Default: crypto/rand.
	Random io.Reader
	// Waited is called for each open of a file that has to wait for a file descriptor, from any
	// goroutine. Default: none.
	Waited func()
	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

// A Store is an open data directory. Append, Compact, Bootstrap and Recover may be called from only
// one goroutine at a time; all other methods from any.
type Store struct {
	dir string
	fs  vfs.FS
	log *slog.Logger
	id  identity

	nodeName  func(uint64) string
	replacing bool
	db        *pebble.DB
	lock      io.Closer
	slow      io.Closer // the watchdog for slow operations
	patient   *patient  // fs

	wal struct {
		sync.Mutex
		noted  uint64        // number in the file WAL
		newest atomic.Uint64 // number of the newest log
		used   uint64        // newest log recorded as used; belongs to Append
		fresh  atomic.Bool   // see freshLogs
	}

	groups map[uint32]*groupState // as last written

	mu struct {
		sync.Mutex
		failure error                    // the first; sticky
		kept    map[uint32][]snapshotRef // snapshots under their final names, oldest first
		writing map[string]bool          // names of temporary files in use
		base    map[uint32]uint64        // index where the log of a group started or was replaced
	}
	failed chan struct{} // closed when failure is set
}

// slowDisk is how long an operation on a file may take before it is logged.
const slowDisk = 2 * time.Second

// Open opens the data directory, or creates it with mode 0700. Anything that is not certainly this
// node's directory, and intact, is refused with a [*RefusedError].
func Open(cfg Config) (*Store, error) {
	s := &Store{
		dir: cfg.Dir,
		fs:  cfg.FS,
		log: cfg.Logger,
		id:  identity{cluster: cfg.ClusterID, node: cfg.NodeID, origin: cfg.Origin, format: firstFormat},

		nodeName:  cfg.NodeName,
		replacing: cfg.Replacing,

		groups: make(map[uint32]*groupState),
		failed: make(chan struct{}),
	}
	s.mu.kept = make(map[uint32][]snapshotRef)
	s.mu.writing = make(map[string]bool)
	s.mu.base = make(map[uint32]uint64)
	if s.fs == nil {
		s.fs = vfs.Default
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.fs, s.slow = vfs.WithDiskHealthChecks(s.fs, slowDisk, nil, func(info vfs.DiskSlowInfo) {
		s.log.Warn("slow disk", "operation", info.String())
	})
	if cfg.Waited == nil {
		cfg.Waited = func() {}
	}
	s.patient = newPatient(s.fs, cfg.Waited, s.log)
	s.fs = s.patient
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	if cfg.ClusterID == "" || cfg.NodeID == 0 {
		return nil, fmt.Errorf("storage: no cluster id (%q) or node id (%d)", cfg.ClusterID, cfg.NodeID)
	}
	if err := s.open(cfg.Random); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.patient.open.Store(true)
	return s, nil
}

// Starved reports whether a file cannot be opened for lack of a file descriptor, or could not until
// a few seconds ago. Writes wait meanwhile, and the disk is fine.
func (s *Store) Starved() bool { return s.patient.starved() }

// Hurry makes everything that waits for a file descriptor fail, from now on.
func (s *Store) Hurry() { s.patient.giveUp() }

// open goes through the directory from the outside in. Nothing is changed before it is known to be
// ours.
func (s *Store) open(random io.Reader) error {
	state, err := s.inspect()
	if err != nil {
		return err
	}
	if err := s.acquire(); err != nil {
		return err
	}
	if state == dirUnfinished { // nothing has been promised from it yet
		if err := s.clear(); err != nil {
			return err
		}
	}
	if state == dirReady {
		err = s.readIdentity()
	} else {
		err = s.create(random)
	}
	if err != nil {
		return err
	}
	if err := s.openLog(state != dirReady); err != nil {
		return err
	}
	if state != dirReady {
		if err := s.finishCreate(); err != nil {
			return err
		}
	}
	return s.scanSnapshots()
}

// InstanceID returns the id drawn when the directory was created.
func (s *Store) InstanceID() InstanceID { return s.id.instance }

// Failed is closed when the store can't be trusted any longer; Err then returns why. The process
// must exit.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Err returns the failure that made the store unusable, or nil.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.failure
}

// fail records the first failure.
func (s *Store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failure == nil {
		s.mu.failure = err
		close(s.failed)
	}
}

// Close releases the directory. After a failure it leaves Pebble as it is, since closing would
// write; the directory then stays locked until the process exits. Close is idempotent.
func (s *Store) Close() (err error) {
	defer rescue(&err)
	defer func() { err = errors.Join(err, s.slow.Close()) }() // last: any use starts it again
	defer s.patient.close()
	if s.Err() != nil {
		return nil
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
		s.db = nil
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
		s.lock = nil
	}
	return err
}
