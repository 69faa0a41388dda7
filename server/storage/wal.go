package storage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
)

// walCreated notes the newest write-ahead log. Pebble calls it when the file and
// its directory entry are durable. A start that doesn't find a log at least as new knows that one is missing: Pebble
// itself would take the loss of its last log for a clean end.
func (s *Store) walCreated(info pebble.WALCreateInfo) {
	if info.Err != nil {
		return // Pebble reports it
	}
	n := uint64(info.FileNum)
	if err := writeFile(s.fs, s.dir, walName, encodeWAL(n)); err != nil {
		s.fail(fmt.Errorf("storage: note the newest log: %w", err))
		return
	}
	s.newestWA.Store(n)
}

func encodeWAL(n uint64) []byte { return fmt.Appendf(nil, "%d\n", n) }

// checkWAL refuses when the newest known log is gone.
func (s *Store) checkWAL() error {
	text, err := readFile(s.fs, s.path(walName), 64)
	if err != nil {
		return s.refuse(ErrAccess, "WAL cannot be read", "check its rights", err)
	}
	want, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return s.refuse(ErrDamaged, "the file WAL is missing or damaged", remedyDamaged, err)
	}
	logs, err := s.walFiles()
	if err != nil {
		return s.refuse(ErrDamaged, "the log is missing", remedyDamaged, err)
	}
	if len(logs) == 0 || logs[len(logs)-1] < want {
		return s.refuse(ErrDamaged, fmt.Sprintf("log file %s is missing", walFile(want)), remedyDamaged, nil)
	}
	return nil
}

func walFile(n uint64) string { return fmt.Sprintf("%06d.log", n) }

// walFiles lists the numbers of the write-ahead logs in rising order.
func (s *Store) walFiles() ([]uint64, error) {
	names, err := s.fs.List(s.path(logName))
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, ".log")
		if n, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// locateDamage says in which log file, and where, reading stops. Pebble doesn't.
func (s *Store) locateDamage() string {
	logs, err := s.walFiles()
	if err != nil {
		return ""
	}
	for _, n := range logs {
		if at, err := s.readWAL(n); err != nil {
			return fmt.Sprintf(" (file %s/%s, offset %d)", logName, walFile(n), at)
		}
	}
	return ""
}

// readWAL reads a log to its end and tells where the first error is that isn't a torn tail.
func (s *Store) readWAL(n uint64) (offset int64, err error) {
	f, err := s.fs.Open(s.fs.PathJoin(s.path(logName), walFile(n)))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := newReader(record.NewReader, f, n)
	for {
		at := r.Offset()
		rec, err := r.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, record.ErrUnexpectedEOF):
			return at, nil
		default:
			return at, err
		}
	}
}

// newReader is record.NewReader for a plain number: the type that it takes has no public name.
func newReader[T ~uint64](make func(io.Reader, T) *record.Reader, r io.Reader, n uint64) *record.Reader {
	return make(r, T(n))
}
