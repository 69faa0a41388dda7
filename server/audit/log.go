package audit

import (
	"context"
	"errors"
	"fmt"
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
	// syncEvery is how long an event may be in the file without being synced.
	syncEvery = time.Second
	// feedPage is how many events are read from a snapshot's history at a time.
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
	// Logger receives the log. Default: discard.
	Logger *slog.Logger
}

// A Log writes the events of one node to its file. Make it with New, Open it, and run Run. Events and Loaded may be
// called from any goroutine after Open.
type Log struct {
	cfg  Config
	log  *slog.Logger
	wake chan struct{} // holds one

	queue struct {
		sync.Mutex
		events []machine.Event
	}

	last, lost, errors atomic.Uint64

	writing struct {
		sync.Mutex
		writer   Writer
		file     file
		header   Header
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
	}
	l := &Log{cfg: cfg, log: cfg.Logger, wake: make(chan struct{}, 1)}
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
	w.writer.begin(w.header)
	return l.writeLocked()
}

// Events takes events, in the order of their numbers. It never blocks: when too many wait for the disk, new ones are
// let go, and the file says that they are missing.
func (l *Log) Events(events []machine.Event) {
	l.queue.Lock()
	if len(l.queue.events)+len(events) <= maxQueued {
		l.queue.events = append(l.queue.events, events...)
	}
	l.queue.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Loaded takes what the file lacks from the history of a state, before newer events come.
func (l *Log) Loaded(m *machine.Machine) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.addLocked(l.take()) // what came before may be in that history no longer
	for {
		events := m.EventsAfter(l.writing.writer.Last(), feedPage)
		if len(events) == 0 {
			break
		}
		l.addLocked(events)
	}
	l.complain(l.syncLocked())
}

// Run writes until ctx is done; what has come by then is written and synced. A file that cannot be
// written is tried again every second.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.flush()
			l.writing.Lock()
			defer l.writing.Unlock()
			l.complain(l.syncLocked())
			if f := l.writing.file.f; f != nil {
				return f.Close()
			}
			return nil
		case <-l.wake:
			l.flush()
		case <-tick.C:
			l.writing.Lock()
			err := l.writeLocked()
			if err == nil {
				err = l.syncLocked()
			}
			l.complain(err)
			l.writing.Unlock()
		}
	}
}

// flush writes what waits.
func (l *Log) flush() {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.writing.writer.pending.Len() > writeBytes { // the disk does not take it: leave the rest in its bounded queue
		return
	}
	l.addLocked(l.take())
}

func (l *Log) take() (events []machine.Event) {
	l.queue.Lock()
	defer l.queue.Unlock()
	events, l.queue.events = l.queue.events, nil
	return events
}

func (l *Log) addLocked(events []machine.Event) {
	w := &l.writing
	for i := range events {
		w.writer.Add(&events[i])
		if w.writer.pending.Len() >= writeBytes {
			l.complain(l.writeLocked())
		}
	}
	l.complain(l.writeLocked())
}

// writeLocked writes the lines that wait, and rotates a file that is large enough. l.writing must be held.
func (l *Log) writeLocked() error {
	w := &l.writing
	if w.file.f == nil {
		return errors.New("not open")
	}
	if w.writer.pending.Len() > 0 {
		if err := w.file.write(w.writer.pending.Bytes()); err != nil {
			return err
		}
		w.writer.pending.Reset()
		w.unsynced = true
	}
	l.last.Store(w.writer.last)
	l.lost.Store(w.writer.lost)
	if w.file.size < l.cfg.FileBytes {
		return nil
	}
	if err := w.file.rotate(); err != nil {
		return err
	}
	w.unsynced = true
	w.writer.begin(w.header)
	err := w.file.write(w.writer.pending.Bytes())
	if err == nil {
		w.writer.pending.Reset()
	}
	return err
}

func (l *Log) syncLocked() error {
	w := &l.writing
	if !w.unsynced || w.file.f == nil {
		return nil
	}
	if err := w.file.f.Sync(); err != nil {
		return err
	}
	w.unsynced = false
	return nil
}

// complain counts an error and logs it now and then.
func (l *Log) complain(err error) {
	if err == nil {
		return
	}
	l.errors.Add(1)
	if now := time.Now(); now.Sub(l.writing.told) > complainEvery {
		l.writing.told = now
		l.log.Error("the audit log cannot be written; events are kept for a while", "file", l.cfg.Path, "err", err)
	}
}

// A Status is how a Log is.
type Status struct {
	Last   uint64 // number of the last event in the file
	Lost   uint64 // events that the file says are missing, since Open
	Errors uint64 // of the file, since Open
}

// Status may be called from any goroutine.
func (l *Log) Status() Status {
	return Status{l.last.Load(), l.lost.Load(), l.errors.Load()}
}
