package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A place is the location of an event's line.
type place struct {
	f      *os.File // to be closed; nil: there is none
	offset int64
	size   int64 // of the whole lines in f
	first  uint64
}

// find finds the first event numbered from or higher in the files of one life of a node. The files
// must not be rotated meanwhile.
func (f *file) find(h Header, from uint64) (place, error) {
	oldest := -1
	for i := range f.keep {
		old, err := firstLine(f.name(i))
		if errors.Is(err, fs.ErrNotExist) || err != nil && i == 0 {
			continue // removed by somebody, or just begun
		}
		if err != nil || !h.continues(old) {
			break
		}
		if oldest = i; old.Next <= from {
			break
		}
	}
	for i := oldest; i >= 0; i-- {
		if p, err := f.findIn(i, from); err != nil || p.f != nil {
			return p, err
		}
	}
	return place{}, nil
}

// name returns the path of the i-th newest file.
func (f *file) name(i int) string {
	if i == 0 {
		return f.path
	}
	return fmt.Sprintf("%s.%d", f.path, i)
}

// findIn searches the i-th newest file.
func (f *file) findIn(i int, from uint64) (p place, err error) {
	in, err := os.Open(f.name(i))
	if errors.Is(err, fs.ErrNotExist) {
		return place{}, nil
	}
	if err != nil {
		return place{}, err
	}
	defer func() {
		if p.f == nil {
			err = errors.Join(err, in.Close())
		}
	}()
	size := f.size
	if i > 0 {
		info, err := in.Stat()
		if err != nil {
			return place{}, err
		}
		size = info.Size()
	}
	offset, first, err := seekEvent(in, size, from)
	if err != nil {
		return place{}, fmt.Errorf("%s: %w", f.name(i), err)
	}
	if first == 0 {
		return place{}, nil
	}
	return place{f: in, offset: offset, size: size, first: first}, nil
}

// seekEvent returns the offset and number of the first event numbered from or higher, in size bytes
// of whole lines; number 0: there is none.
func seekEvent(r io.ReaderAt, size int64, from uint64) (offset int64, first uint64, err error) {
	// The line at lo is before from, or the first one; some line after hi is not before it.
	lo, hi := int64(0), size
	buf := make([]byte, 2*maxLine)
	for hi-lo > int64(len(buf)) {
		mid := lo + (hi-lo)/2
		n, err := r.ReadAt(buf, mid)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		begin := bytes.IndexByte(buf[:n], '\n') + 1
		line, _, whole := bytes.Cut(buf[begin:n], []byte("\n"))
		number, ok := accountsFor(line)
		if begin == 0 || !whole || !ok {
			return 0, 0, fmt.Errorf("no audit log line after byte %d", mid)
		}
		if number < from {
			lo = mid + int64(begin)
		} else {
			hi = mid
		}
	}
	return scanEvent(io.NewSectionReader(r, lo, size-lo), lo, from)
}

// scanEvent is seekEvent line by line, in what begins at an offset.
func scanEvent(r io.Reader, offset int64, from uint64) (int64, uint64, error) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return 0, 0, nil // a torn last line of an old file does not count
		}
		if err != nil {
			return 0, 0, fmt.Errorf("after byte %d: %w", offset, err)
		}
		if number, ok := eventNumber(line); ok && number >= from {
			return offset, number, nil
		}
		offset += int64(len(line))
	}
}
