package audit

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
)

// answerBytes bounds one answer. The peer asks for more after it.
const answerBytes = 16 << 20

// A head is the first line of an answer.
type head struct {
	Audit int    `json:"audit"` // the format, 1
	First uint64 `json:"first"` // first event here at or after the requested one; 0: none
	Last  uint64 `json:"last"`  // number of the last event here
	// Waiting says that this log is itself waiting for events after its last one, so it may get
	// them later than other logs.
	Waiting bool `json:"waiting"`
}

// Answer answers a peer that asks for the lines of the events in [from, to): one line that says
// what is here and, if the event from is here, its line and those that follow, up to a gap, the end
// of a file, or 16 MiB. It continues even if files are rotated meanwhile. The answer must be
// closed.
func (l *Log) Answer(from, to uint64) (io.ReadCloser, error) {
	w := &l.writing
	w.Lock() // no file is rotated while they are examined
	defer w.Unlock()
	p, err := w.file.find(w.header, from)
	if err != nil {
		return nil, err
	}
	h := head{Audit: format, First: p.first, Last: l.last.Load(), Waiting: l.wanted.Load() > 0}
	a := &answer{next: from, to: to, room: answerBytes}
	if a.rest, err = json.Marshal(h); err != nil {
		return nil, err
	}
	a.rest = append(a.rest, '\n')
	if p.f != nil {
		a.file, a.lines = p.f, bufio.NewReaderSize(io.NewSectionReader(p.f, p.offset, p.size-p.offset), maxLine)
	}
	return a, nil
}

// An answer reads its lines from a file, which may have been rotated or deleted by then.
type answer struct {
	file  *os.File      // nil: there are no lines
	lines *bufio.Reader // of file, up to its end when it was opened
	rest  []byte        // of the line being returned
	next  uint64
	to    uint64
	room  int // bytes
}

// Read returns whole lines as far as p has room.
func (a *answer) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(a.rest) == 0 {
			if a.rest, err = a.line(); err != nil {
				return n, err
			}
		}
		copied := copy(p[n:], a.rest)
		n, a.rest = n+copied, a.rest[copied:]
	}
	return n, nil
}

// line returns the next line, or io.EOF.
func (a *answer) line() ([]byte, error) {
	if a.lines == nil || a.next >= a.to {
		return nil, io.EOF
	}
	line, err := a.lines.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	number, ok := eventNumber(line)
	if a.room -= len(line); !ok || number != a.next || a.room < 0 {
		a.lines = nil
		return nil, io.EOF
	}
	a.next++
	return line, nil
}

// Close closes the file.
func (a *answer) Close() error {
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}
