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

	"github.com/lockstep-dev/lockstep/server/command"
)

// Defaults and bounds of a Config.
const (
	DefaultFileBytes = 64 << 20
	MinFileBytes     = 64 << 10
	DefaultFiles     = 16
	MaxFiles         = 10_000
)

const (
	// maxQueued bounds the events waiting for the disk, some 100 MB: half a minute at 10,000 a
	// second.
	maxQueued = 262_144
	// feedPage is how many events are taken from the queue or a snapshot's history at a time.
	feedPage = 4096
	// writeBytes is the minimum size of a write, if there is that much.
	writeBytes = 1 << 20
	// complainEvery is the minimum time between two log lines about a file that cannot be written.
	complainEvery = 10 * time.Second
)

// A Config configures New.
type Config struct {
	// Path is the file. Its directory must exist. Older files are next to it, as Path.1 and so on.
	Path string
	// FileBytes is the size at which a file is rotated, at least 64 KiB. Default: 64 MiB.
	FileBytes int64
	// Files is the maximum number of files, 1 to 10,000; the oldest is deleted. Default: 16.
	Files int
	// Node is the name of the node. A file of another node is refused.
	Node string
	// Peers returns the ids of the other nodes, in the order in which they are best asked for
	// missing events. Ask sends a question to one of them and returns what its Log's Answer
	// returns, or an error, which matches ErrNoLog if that node has no audit log to ask. Run calls
	// both, after the first call of Events or Loaded. Default: there are no peers to ask.
	Peers func() []uint64
	Ask   func(ctx context.Context, peer, from, to uint64) (io.ReadCloser, error)
	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

// A Log writes the events of one node to its file. Create it with New, Open it, and run Run.
// Events, Loaded, Answer and Status may be called from any goroutine after Open.
type Log struct {
	cfg  Config
	log  *slog.Logger
	wake chan struct{} // holds one

	queue  queue
	search search // used only by Run
	giver  uint64 // the peer that last gave lines, or 0; used only by Run

	last, lost, errors, fetched, wanted atomic.Uint64

	writing struct {
		sync.Mutex
		writer   Writer
		past     History // of the last snapshot, until the file has all of it; nil if it has
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
		return nil, errors.New("audit: Peers and Ask must both be set, or neither")
	}
	l := &Log{cfg: cfg, log: cfg.Logger, wake: make(chan struct{}, 1)}
	l.queue.limit = maxQueued
	l.writing.file = file{path: cfg.Path, keep: cfg.Files}
	return l, nil
}

// Open opens the file, cuts off a torn last line, and finds where it ends. A file of another node
// is refused, and one of another instance of this node, or of another cluster, is rotated away.
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

// Reopen checks at once whether another program has moved or truncated the file. A log also checks
// before each write.
func (l *Log) Reopen() {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.writing.file.f != nil {
		l.complain(l.followLocked())
	}
}

// Events takes events, in the order of their numbers. It never blocks: if too many events wait for
// the disk or for a gap before them, new ones are dropped, and peers are asked for them later.
func (l *Log) Events(events []command.Event) {
	l.queue.add(events)
	l.nudge()
}

// A History has the newest events at one moment, as the state in a snapshot has them. It does not
// change, and may be read from any goroutine.
type History interface {
	// After returns events with numbers above after, at most limit, oldest first.
	After(after uint64, limit int) []command.Event
}

// Loaded takes what the file lacks from the history of a state. Whatever else is missing, Run asks
// the peers for. If a history already waits for such an answer, the newer one replaces it; what
// only the older one had is asked for as well.
func (l *Log) Loaded(past History) {
	w := &l.writing
	w.Lock()
	defer w.Unlock()
	l.advanceLocked() // as far as the earlier history goes
	w.past = past
	l.advanceLocked()
	l.complain(l.syncLocked())
	l.nudge()
}

// nudge makes Run check for work.
func (l *Log) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// A Status describes the state of a Log.
type Status struct {
	Last    uint64 // number of the last event in the file
	Lost    uint64 // events that the file records as missing, since Open
	Fetched uint64 // events that peers gave, since Open
	Wanted  uint64 // events that peers are being asked for
	Errors  uint64 // errors of the file, since Open
}

// Status may be called from any goroutine.
func (l *Log) Status() Status {
	return Status{l.last.Load(), l.lost.Load(), l.fetched.Load(), l.wanted.Load(), l.errors.Load()}
}
