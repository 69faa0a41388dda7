package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// tailBytes is how much of a file's end is examined: more than what is written between two syncs,
// and more than a line.
const tailBytes = 8 << 20

// A file is the present file and its predecessors: path, path.1 and so on, a higher number being
// older.
type file struct {
	path string
	keep int // total number of files
	f    *os.File
	size int64
}

// open opens the file, repairs its end and returns the number of the last event in it. fresh
// reports that a header is needed: there was no file, or it belonged to another life of the node
// and was rotated away.
func (f *file) open(h Header) (last uint64, fresh bool, err error) {
	if f.f, err = os.OpenFile(f.path, openFlags, 0o600); err != nil {
		return 0, false, err
	}
	info, err := f.f.Stat()
	if err != nil {
		return 0, false, err
	}
	if !info.Mode().IsRegular() {
		return 0, false, fmt.Errorf("%s is not a regular file", f.path)
	}
	f.size = info.Size()
	if err := f.dropTornHeader(); err != nil {
		return 0, false, err
	}
	if f.size == 0 {
		return f.before(h)
	}
	old, err := firstLine(f.path)
	if err != nil {
		if last, ok := f.overwritten(h); ok {
			return last, true, f.rotate()
		}
		return 0, false, fmt.Errorf("%s is not an audit log (%w): use another file", f.path, err)
	}
	if old.Node != h.Node {
		return 0, false, fmt.Errorf("%s is the audit log of node %s: use another file", f.path, old.Node)
	}
	if !h.continues(old) {
		return 0, true, f.rotate()
	}
	last, err = f.mend()
	return last, false, err
}

// dropTornHeader empties a file in which a crash has left a part of the first line.
func (f *file) dropTornHeader() error {
	start := make([]byte, min(f.size, maxHeader))
	if _, err := f.f.ReadAt(start, 0); err != nil {
		return err
	}
	torn := f.size < maxHeader && !bytes.ContainsRune(start, '\n')
	if n := min(len(start), len(headerStart)); torn && string(start[:n]) == headerStart[:n] {
		return f.cut(0)
	}
	return nil
}

// overwritten reports whether the file was left by an older build when another program truncated it
// while it was being written: zeros, and then lines. last is the number of the last event in them,
// or 0 if the older file does not show that they belong to this life of the node.
func (f *file) overwritten(h Header) (last uint64, ok bool) {
	start := make([]byte, 1)
	if _, err := f.f.ReadAt(start, 0); err != nil || start[0] != 0 {
		return 0, false
	}
	from := max(0, f.size-tailBytes)
	tail := make([]byte, f.size-from)
	if _, err := f.f.ReadAt(tail, from); err != nil {
		return 0, false
	}
	lines := bytes.TrimLeft(tail, "\x00")
	_, last, ok = readTail(lines, len(lines) < len(tail))
	if old, err := firstLine(f.name(1)); err != nil || !h.continues(old) {
		last = 0
	}
	return last, ok
}

// openFlags has O_APPEND, so that what is written after another program has truncated the file is
// not preceded by zeros.
const openFlags = os.O_RDWR | os.O_CREATE | os.O_APPEND

const (
	headerStart = `{"audit":`
	maxHeader   = 4096 // bytes; ids and names are far shorter
)

// before finds the last event when the file is new: there may have been a crash between the
// rotation and the first line.
func (f *file) before(h Header) (last uint64, fresh bool, err error) {
	older := file{path: f.path + ".1", keep: 1}
	old, err := firstLine(older.path)
	if err != nil || !h.continues(old) {
		return 0, true, nil
	}
	if older.f, err = os.OpenFile(older.path, os.O_RDWR, 0); err != nil {
		return 0, false, err
	}
	defer older.f.Close()
	info, err := older.f.Stat()
	if err != nil {
		return 0, false, err
	}
	older.size = info.Size()
	last, err = older.mend()
	return last, true, err
}

// continues reports whether event numbers continue from those of an older file. They do not if the
// directory or the cluster was recreated.
func (h Header) continues(old Header) bool {
	return h.Cluster == old.Cluster && h.Node == old.Node && h.Instance == old.Instance
}

func firstLine(path string) (h Header, err error) {
	f, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 64<<10)).ReadBytes('\n')
	if err != nil {
		return h, errors.New("its first line is incomplete")
	}
	if err := json.Unmarshal(line, &h); err != nil || h.Audit != format {
		return h, errors.New("its first line is not an audit log header")
	}
	return h, nil
}

// mend cuts off what follows the last good line.
func (f *file) mend() (last uint64, err error) {
	from := max(0, f.size-tailBytes)
	tail := make([]byte, f.size-from)
	if _, err := f.f.ReadAt(tail, from); err != nil {
		return 0, err
	}
	good, last, found := readTail(tail, from == 0)
	if !found {
		return 0, fmt.Errorf("%s: the last %d bytes do not contain an audit log line: use another file", f.path, len(tail))
	}
	return last, f.cut(from + int64(good))
}

func (f *file) cut(size int64) error {
	f.size = size
	return f.f.Truncate(size)
}

// write appends b, or nothing.
func (f *file) write(b []byte) error {
	n, err := f.f.Write(b)
	if err == nil {
		f.size += int64(n)
		return nil
	}
	if info, failed := f.f.Stat(); failed != nil || info.Size() <= f.size {
		return err
	}
	return errors.Join(err, f.cut(f.size))
}

// rotate turns the present file into an old one, removes the oldest, and starts a new one.
func (f *file) rotate() error {
	if err := f.f.Sync(); err != nil {
		return err
	}
	// The new file comes first: if there is no file descriptor for it, nothing has moved, and
	// rotation is tried again.
	next, err := os.OpenFile(f.path+newSuffix, openFlags|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := f.shift(); err != nil {
		return errors.Join(err, next.Close())
	}
	old := f.f
	f.f, f.size = next, 0
	return errors.Join(old.Close(), syncDirOf(f.path))
}

// newSuffix marks a file that is about to replace the present one.
const newSuffix = ".new"

// shift gives each file the name of the next older one, and the new file the present one's.
func (f *file) shift() error {
	for i := f.keep - 1; i >= 1; i-- {
		from := f.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", f.path, i-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", f.path, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(f.path+newSuffix, f.path)
}

func syncDirOf(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
