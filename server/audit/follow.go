package audit

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"time"
)

// Programs such as logrotate move the file away, or copy and truncate it, while it is being
// written. Before each write and every second, a log checks what has happened to its file, and
// continues in a file that begins with a header:
//
//   - moved or deleted: a new file is begun at the path. Nothing more is written to the old one.
//   - truncated: the lines of the last repeatFor are written again, since the copy may have been
//     made before.
const (
	// repeatFor is longer than a program should take between reading the end of the file and
	// truncating it.
	repeatFor = 10 * time.Second
	// repeatBytes bounds what is kept for that: at some 300 B an event, 10 s at 2,500 events a
	// second.
	repeatBytes = 8 << 20
)

// A fate is what happened to the file while it was open.
type fate int

const (
	untouched fate = iota
	moved          // another file, or none, is at the path
	cutOff         // it is shorter than what was written
)

// fate checks the file and its path. A path that cannot be checked changes nothing.
func (f *file) fate() fate {
	mine, err := f.f.Stat()
	if err != nil {
		return untouched
	}
	there, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(mine, there):
		return moved
	case mine.Size() < f.size:
		return cutOff
	}
	return untouched
}

// renew begins an empty file at the path, from which the previous one was moved away. If there is a
// file at the path already, it is kept as an older file if it belongs to the same life of the node,
// and otherwise refused; the old file then stays in use.
func (f *file) renew(h Header) error {
	next := file{path: f.path, keep: f.keep}
	_, _, err := next.open(h)
	if err == nil && next.size > 0 {
		err = next.rotate()
	}
	if err != nil {
		if next.f != nil {
			err = errors.Join(err, next.f.Close())
		}
		return err
	}
	old := f.f
	*f = next
	return errors.Join(old.Sync(), old.Close(), syncDirOf(f.path))
}

// restart empties a file that was truncated. If the file still has its first line, only its end was
// cut off: the rest is then kept as an older file.
func (f *file) restart() error {
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	f.size = info.Size()
	if _, err := firstLine(f.path); err != nil {
		return f.cut(0)
	}
	if _, err := f.mend(); err != nil {
		return err
	}
	return f.rotate()
}

// A chunk is what was written at once.
type chunk struct {
	next  uint64 // number of its first event
	lines []byte
	at    time.Time
}

// A memory has the latest chunks. The zero value is empty.
type memory struct {
	chunks []chunk
	bytes  int
}

func (m *memory) add(c chunk) {
	m.chunks = append(m.chunks, c)
	m.bytes += len(c.lines)
	old := 0
	for old < len(m.chunks)-1 && (m.bytes > repeatBytes || c.at.Sub(m.chunks[old].at) > repeatFor) {
		m.bytes -= len(m.chunks[old].lines)
		old++
	}
	m.chunks = append(m.chunks[:0], m.chunks[old:]...)
}

// since returns the lines of the last repeatFor, and the number of the first event in them, or next
// if there is none.
func (m *memory) since(now time.Time, next uint64) (first uint64, lines []byte) {
	var b bytes.Buffer
	first = next
	for _, c := range m.chunks {
		if now.Sub(c.at) > repeatFor {
			continue
		}
		if b.Len() == 0 {
			first = c.next
		}
		b.Write(c.lines)
	}
	return first, b.Bytes()
}

// followLocked continues in a new file, or in the emptied one, if another program has moved or
// truncated the file. l.writing must be held, and the file open.
func (l *Log) followLocked() error {
	w := &l.writing
	next := l.last.Load() + 1
	switch w.file.fate() {
	case moved:
		if err := w.file.renew(w.header); err != nil {
			return err
		}
		w.recent = memory{}
		l.log.Info("the audit log was moved: starting a new file", "file", l.cfg.Path, "from", next)
		return l.beginLocked(next)
	case cutOff:
		first, lines := w.recent.since(time.Now(), next)
		if err := w.file.restart(); err != nil {
			return err
		}
		l.log.Warn("the audit log was truncated by another program: writing the last events again", "file", l.cfg.Path,
			"from", first, "lines", bytes.Count(lines, []byte("\n")), "seconds", repeatFor.Seconds())
		if err := l.beginLocked(first); err != nil {
			return err
		}
		return w.file.write(lines)
	}
	return nil
}

// beginLocked writes the first line of a file whose first event is next. l.writing must be held.
func (l *Log) beginLocked(next uint64) error {
	l.writing.unsynced = true
	return l.writing.file.write(l.writing.header.line(next))
}
