package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-dev/lockstep/server/machine"
)

// Defaults and bounds of a Config.
const (
	DefaultFileBytes = 64 << 20
	MinFileBytes     = 64 << 10
	DefaultFiles     = 16
	MaxFiles         = 10_000
)

const (
	// maxQueued bounds the events that wait for the disk, some 100 MB: half a minute at 10,000 a second.
	maxQueued = 262_144
	// feedPage is how many events are taken from the queue or a snapshot's history at a time.
	feedPage = 4096
	// writeBytes is how much is written at a time at least, if there is as much.
	writeBytes = 1 << 20
	// complainEvery is the least time between two complaints about a file that cannot be written.
	complainEvery = 10 * time.Second
)

// A Config is what New needs.
type Config struct {
	// Path is the file. Its directory must exist. Older files are beside it, as Path.1 and so on.
	Path string
	// FileBytes is the size at which a file is rotated, at least 64 KiB. Default: 64 MiB.
	FileBytes int64
	// Files is how many there are at most, 1 to 10,000; the oldest goes. Default: 16.
	Files int
	// Node is the name of the node. A file of another is refused.
	Node string
	// Peers gives the ids of the other nodes, in the order in which they are best asked for missing events. Ask
	// brings a question to one of them: what its Log's Answer gives, or an error, which matches ErrNoLog when that node
	// has no audit log to ask. Both are called by Run, after Events or Loaded was called first. Default: there
	// is nobody to ask.
	Peers func() []uint64
	Ask   func(ctx context.Context, peer, from, to uint64) (io.ReadCloser, error)
	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

// A Log writes the events of one node to its file. Make it with New, Open it, and run Run. Events, Loaded, Answer and
// Status may be called from any goroutine after Open.
type Log struct {
	cfg  Config
	log  *slog.Logger
	wake chan struct{} // holds one

	queue  queue
	search search // used by Run alone
	giver  uint64 // the peer that gave lines last, or 0; used by Run alone

	last, lost, errors, fetched, wanted atomic.Uint64

	writing struct {
		sync.Mutex
		writer   Writer
		past     machine.Past // of the last snapshot, until the file has all of it
		file     file
		header   Header
		recent   memory // of the present file
		unsynced bool
		told     time.Time // when the last error was logged
	}
}

// New checks the configuration. It opens nothing.
func New(cfg Config) (*Log, error) {
	if cfg.FileBytes == 0 {
		cfg.FileBytes = DefaultFileBytes
	}
	if cfg.Files == 0 {
		cfg.Files = DefaultFiles
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.Path == "":
		return nil, errors.New("audit: Path is empty")
	case cfg.FileBytes < MinFileBytes:
		return nil, fmt.Errorf("audit: FileBytes is %d, must be at least %d", cfg.FileBytes, int64(MinFileBytes))
	case cfg.Files < 1 || cfg.Files > MaxFiles:
		return nil, fmt.Errorf("audit: Files is %d, must be 1 to %d", cfg.Files, MaxFiles)
	case (cfg.Peers == nil) != (cfg.Ask == nil):
		return nil, errors.New("audit: Peers and Ask must be given both or not at all")
	}
	l := &Log{cfg: cfg, log: cfg.Logger, wake: make(chan struct{}, 1)}
	l.queue.limit = maxQueued
	l.writing.file = file{path: cfg.Path, keep: cfg.Files}
	return l, nil
}

// Open opens the file, cuts off a torn last line, and finds where it ends. A file of another node is
// refused, and one of another instance of this node, or of another cluster, is rotated away.
func (l *Log) Open(cluster, instance string) error {
	w := &l.writing
	w.Lock()
	defer w.Unlock()
	w.header = Header{Cluster: cluster, Node: l.cfg.Node, Instance: instance}
	last, fresh, err := w.file.open(w.header)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	w.writer.Resume(last)
	l.last.Store(last)
	if !fresh {
		return nil
	}
	return l.beginLocked(last + 1)
}

// Reopen looks at once whether another program has moved the file away or cut it off, as a log does before each write anyway.
func (l *Log) Reopen() {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.writing.file.f != nil {
		l.complain(l.followLocked())
	}
}

// Events takes events, in the order of their numbers. It never blocks: when too many wait for the disk or for a gap
// before them, new ones are let go, and peers are asked for them later.
func (l *Log) Events(events []machine.Event) {
	l.queue.add(events)
	l.nudge()
}

// Loaded takes what the file lacks from the history of a state. What it lacks beside that, Run asks the peers for. A
// history that waits for such an answer is replaced by a newer one; what only the older had is asked for as well.
func (l *Log) Loaded(m *machine.Machine) {
	w := &l.writing
	w.Lock()
	defer w.Unlock()
	l.advanceLocked() // as far as what came before goes
	w.past = m.Past()
	l.advanceLocked()
	l.complain(l.syncLocked())
	l.nudge()
}

// nudge makes Run look.
func (l *Log) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// A Status is how a Log is.
type Status struct {
	Last    uint64 // number of the last event in the file
	Lost    uint64 // events that the file says are missing, since Open
	Fetched uint64 // events that peers gave, since Open
	Wanted  uint64 // events that peers are asked for now
	Errors  uint64 // of the file, since Open
}

// Status may be called from any goroutine.
func (l *Log) Status() Status {
	return Status{l.last.Load(), l.lost.Load(), l.fetched.Load(), l.wanted.Load(), l.errors.Load()}
}
