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

// Pebble takes some losses for the clean end of a log: a newest write-ahead log that is gone or
// empty, and damage within the last 32 KiB of it. The file WAL and checkTail close these gaps.

// walCreated records the newest write-ahead log. Pebble calls it when the file and its directory
// entry are durable.
func (s *Store) walCreated(info pebble.WALCreateInfo) {
	if info.Err != nil {
		s.noLog(info.Err)
		return
	}
	n := uint64(info.FileNum)
	s.noteWAL(n, false)
	s.wal.newest.Store(n)
}

// noLog fails the store when there is no new write-ahead log. Pebble's reaction is a panic that
// can't be recovered from (it holds a mutex that it has unlocked), so its goroutine, which is that
// of the write, is blocked forever. Open itself reports the error.
func (s *Store) noLog(err error) {
	if s.db != nil {
		s.fail(fmt.Errorf("storage: create a write-ahead log: %w", err))
		select {}
	}
}

// walUsed records, once for each write-ahead log, that something was acknowledged from it. before
// is the newest log before that write: if it still is, the write went there.
func (s *Store) walUsed(before uint64) error {
	if s.wal.used == before || s.wal.newest.Load() != before {
		return nil
	}
	if err := s.noteWAL(before, true); err != nil {
		return err
	}
	s.wal.used = before
	return nil
}

// noteWAL writes the file WAL: a number and whether that log must have content.
func (s *Store) noteWAL(n uint64, used bool) error {
	text := fmt.Sprintf("%d new\n", n)
	if used {
		text = fmt.Sprintf("%d used\n", n)
	}
	s.wal.Lock()
	defer s.wal.Unlock()
	if n < s.wal.noted {
		return nil // a newer one was created meanwhile
	}
	if err := writeFile(s.fs, s.dir, walName, []byte(text)); err != nil {
		err = fmt.Errorf("storage: record the newest log: %w", err)
		s.fail(err)
		return err
	}
	s.wal.noted = n
	return nil
}

// checkWAL refuses to open if the newest known log is gone, or has lost what was acknowledged from
// it.
func (s *Store) checkWAL() error {
	text, err := readFile(s.fs, s.path(walName), 64)
	if err != nil {
		return s.refuse(ErrAccess, "WAL cannot be read", "check its permissions", err)
	}
	number, state, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	want, err := strconv.ParseUint(number, 10, 64)
	if err != nil || state != "used" && state != "new" {
		return s.refuse(ErrDamaged, "the file WAL is missing or damaged", remedyDamaged, err)
	}
	logs, err := s.walFiles()
	if err != nil {
		return s.refuse(ErrDamaged, "the log is missing", remedyDamaged, err)
	}
	if len(logs) == 0 || logs[len(logs)-1] < want {
		return s.refuse(ErrDamaged, fmt.Sprintf("log file %s is missing", walFile(want)), remedyDamaged, nil)
	}
	return s.checkTail(logs[len(logs)-1], want, state == "used")
}

// checkTail distinguishes damage from a torn tail in the newest log: what lies after the place
// where reading stops may show that this place was durable.
func (s *Store) checkTail(newest, noted uint64, used bool) error {
	damaged := func(at int64, what string) error {
		return s.refuse(ErrDamaged, fmt.Sprintf("%s (file %s/%s, offset %d)", what, logName, walFile(newest), at), remedyDamaged, nil)
	}
	at, err := s.readWAL(newest)
	if err != nil {
		return damaged(at, "the log is damaged: "+err.Error())
	}
	if at == 0 && used && newest == noted {
		return damaged(at, "the log lost its content")
	}
	rest, err := s.readFrom(newest, at)
	if err != nil {
		return s.refuse(ErrAccess, "the log cannot be read", "check the permissions and the disk", err)
	}
	if durableBeyond(rest, at, newest) {
		return damaged(at, "the log is damaged: later data shows that more was durable")
	}
	if n := tornBytes(rest, newest); n > 0 {
		s.log.Warn("dropped the incomplete last record of the log", "file", walFile(newest), "offset", at, "bytes", n)
	}
	return nil
}

func walFile(n uint64) string { return fmt.Sprintf("%06d.log", n) }

func (s *Store) walPath(n uint64) string { return s.fs.PathJoin(s.path(logName), walFile(n)) }

// walFiles lists the numbers of the write-ahead logs in ascending order.
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

// readWAL reads a log until it ends, torn or not, and returns where. An error is damage that Pebble
// detects too.
func (s *Store) readWAL(n uint64) (offset int64, err error) {
	f, err := s.fs.Open(s.walPath(n))
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

// newReader is record.NewReader for a plain number: its parameter type is not exported.
func newReader[T ~uint64](make func(io.Reader, T) *record.Reader, r io.Reader, n uint64) *record.Reader {
	return make(r, T(n))
}

// walReadLimit bounds what is read after a torn tail: a log is not longer than a few memtables plus
// the largest batch.
const walReadLimit = 256 << 20

func (s *Store) readFrom(n uint64, at int64) ([]byte, error) {
	f, err := s.fs.Open(s.walPath(n))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(max(info.Size()-at, 0), walReadLimit))
	k, err := f.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:k], err
}
