package audit

import (
	"bytes"
	"context"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// syncEvery is how long an event may be in the file without being synced.
const syncEvery = time.Second

// Run writes, and asks peers for what is missing, until ctx is done. What has arrived by then is
// written and synced, up to the first gap: the next start continues from there. If the file cannot
// be written, Run tries again every second.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.close()
		case <-l.wake:
		case <-tick.C:
			l.sync()
		}
		l.catchUp(ctx)
	}
}

func (l *Log) close() error {
	l.flush()
	l.sync()
	l.writing.Lock()
	defer l.writing.Unlock()
	if f := l.writing.file.f; f != nil {
		return f.Close()
	}
	return nil
}

// catchUp writes what there is and asks for what is missing, until nothing can be done for now.
func (l *Log) catchUp(ctx context.Context) {
	for ctx.Err() == nil {
		g, idle := l.flush()
		if idle {
			l.search.end(l.log)
		}
		if g.empty() || !l.search.due(time.Now()) {
			return
		}
		l.fetch(ctx, g)
		l.sync()
	}
}

// A gap is missing events: those in [from, to).
type gap struct{ from, to uint64 }

func (g gap) empty() bool { return g.from >= g.to }

// flush writes what waits, up to a gap. idle reports that there is nothing more.
func (l *Log) flush() (g gap, idle bool) {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.advanceLocked()
}

// advanceLocked writes what follows the file's last event, from the queue or from the history of a
// snapshot, and returns the gap that it stops at. While the disk accepts nothing, the rest stays in
// the bounded queue. l.writing must be held.
func (l *Log) advanceLocked() (g gap, idle bool) {
	w := &l.writing
	for w.file.f != nil && w.writer.pending.Len() < writeBytes {
		want := w.writer.Last() + 1
		events, front := l.nextLocked(want)
		switch {
		case len(events) > 0:
			l.addLocked(events)
		case front == 0:
			l.wanted.Store(0)
			l.complain(l.writeLocked())
			return gap{}, true
		case l.cfg.Peers == nil:
			w.writer.Skip(front - 1)
		default:
			l.wanted.Store(front - want)
			return gap{want, front}, false
		}
	}
	return gap{}, false
}

// nextLocked takes events from the number want on. If that event is not there, front is the number
// of the first one after it, or 0. l.writing must be held.
func (l *Log) nextLocked(want uint64) (events []command.Event, front uint64) {
	events, front = l.queue.next(want, feedPage)
	if len(events) > 0 {
		return events, 0
	}
	past := l.writing.past
	if past == nil {
		return nil, front
	}
	first := past.After(want-1, 1)
	switch {
	case len(first) == 0:
		l.writing.past = nil // the file has all of it
		return nil, front
	case first[0].Number == want:
		return past.After(want-1, feedPage), 0
	case front == 0:
		return nil, first[0].Number
	}
	return nil, min(front, first[0].Number)
}

func (l *Log) addLocked(events []command.Event) {
	w := &l.writing
	for i := range events {
		w.writer.Add(&events[i])
		if w.writer.pending.Len() >= writeBytes {
			l.complain(l.writeLocked())
		}
	}
	l.complain(l.writeLocked())
}

// writeLocked writes the waiting lines, and rotates a file that is large enough. l.writing must be
// held.
func (l *Log) writeLocked() error {
	w := &l.writing
	l.complain(l.followLocked()) // if no new file can be made, the old one takes the lines
	if w.file.size == 0 {        // begun, but what came after that failed
		if err := l.beginLocked(l.last.Load() + 1); err != nil {
			return err
		}
	}
	if lines := w.writer.pending.Bytes(); len(lines) > 0 {
		if err := w.file.write(lines); err != nil {
			return err
		}
		w.recent.add(chunk{next: l.last.Load() + 1, lines: bytes.Clone(lines), at: time.Now()})
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
	w.recent = memory{}
	return l.beginLocked(l.last.Load() + 1)
}

// sync writes what waits and makes the file durable, if it is open.
func (l *Log) sync() {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.writing.file.f == nil {
		return
	}
	err := l.writeLocked()
	if err == nil {
		err = l.syncLocked()
	}
	l.complain(err)
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

// complain counts an error and logs it at intervals.
func (l *Log) complain(err error) {
	if err == nil {
		return
	}
	l.errors.Add(1)
	if now := time.Now(); now.Sub(l.writing.told) > complainEvery {
		l.writing.told = now
		l.log.Error("cannot write the audit log; events are buffered for a while", "file", l.cfg.Path, "err", err)
	}
}
