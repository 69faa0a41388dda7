package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

const (
	magic = "lockstep backup\n"
	// Format is the newest version of the file that this build knows.
	Format = 1
	// headerLimit bounds the header: 64 KiB are hundreds of members.
	headerLimit = 64 << 10
	// SumBytes is the size of the checksum at the end.
	SumBytes = sha256.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrDamaged is wrapped by every error of [Open] about the content: truncated, modified, or not a
// backup.
var ErrDamaged = errors.New("damaged backup, or not a backup")

// ErrNewer is the error for a file of a newer build.
var ErrNewer = errors.New("backup from a newer version")

// A Header says where a backup comes from.
type Header struct {
	Format    int    `json:"format"`
	ClusterID string `json:"cluster_id"`
	Node      string `json:"node"` // the node that wrote it
	// Index and Term are those of the last log entry included in the state.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// Voters and Learners are the ids of the members.
	Voters   []uint64 `json:"voters"`
	Learners []uint64 `json:"learners,omitempty"`
	// TakenAt is the node's wall clock in milliseconds since 1970.
	TakenAt command.WallMillis `json:"taken_at_ms"`
	Version string             `json:"version"`
}

// Time returns TakenAt.
func (h *Header) Time() time.Time { return time.UnixMilli(int64(h.TakenAt)).UTC() }

// Write writes a backup: the header, with Format set, the state as a snapshot of the machine, and
// the checksum.
func Write(w io.Writer, h Header, state io.Reader) error {
	h.Format = Format
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("backup: header: %w", err)
	}
	if len(text) > headerLimit {
		return fmt.Errorf("backup: header of %d bytes, the limit is %d", len(text), headerLimit)
	}
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	b := binary.BigEndian.AppendUint32([]byte(magic), uint32(len(text)))
	b = append(b, text...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(text, castagnoli))
	if _, err := both.Write(b); err != nil {
		return err
	}
	if _, err := io.Copy(both, state); err != nil {
		return err
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// A File is a backup that was read and verified.
type File struct {
	Header
	// Machine is the state at the time of the backup.
	Machine *machine.Machine
	// Sum is the SHA-256 of the file without the checksum, in hexadecimal digits.
	Sum  string
	Size int64
}

// Open reads a complete backup and checks all of it: both checksums, the version, and the state
// with its invariants. It does not follow a symbolic link at the end of path, and reads only
// regular files.
func Open(path string) (*File, error) {
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() { // opening a pipe would wait for its writer
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(named, info) {
		return nil, fmt.Errorf("%s: replaced while being opened", path)
	}
	b, err := read(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

func read(f io.ReaderAt, size int64) (*File, error) {
	b := &File{Size: size}
	at, err := b.readHeader(f, size)
	if err != nil {
		return nil, err
	}
	end := size - SumBytes
	if at > end {
		return nil, fmt.Errorf("%w: truncated", ErrDamaged)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, end)); err != nil {
		return nil, err
	}
	want := make([]byte, SumBytes)
	if _, err := f.ReadAt(want, end); err != nil && err != io.EOF {
		return nil, err
	}
	b.Sum = hex.EncodeToString(want)
	if !bytes.Equal(sum.Sum(nil), want) {
		return nil, fmt.Errorf("%w: the checksum at the end is %s, that of the content is %x", ErrDamaged, b.Sum, sum.Sum(nil))
	}
	if b.Machine, err = machine.Restore(io.NewSectionReader(f, at, end-at)); errors.Is(err, command.ErrNewer) {
		return nil, fmt.Errorf("%w: %w", ErrNewer, err)
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if b.Machine.Index() > b.Index {
		return nil, fmt.Errorf("%w: the state is from entry %d, but the header says %d", ErrDamaged, b.Machine.Index(), b.Index)
	}
	return b, nil
}

// readHeader reads up to the state, and returns the offset at which the state begins.
func (b *File) readHeader(f io.ReaderAt, size int64) (int64, error) {
	head := make([]byte, len(magic)+4)
	if _, err := f.ReadAt(head, 0); err != nil || string(head[:len(magic)]) != magic {
		return 0, fmt.Errorf("%w: wrong magic at the start", ErrDamaged)
	}
	n := int64(binary.BigEndian.Uint32(head[len(magic):]))
	at := int64(len(head))
	if n > headerLimit || at+n+4 > size {
		return 0, fmt.Errorf("%w: a header of %d bytes", ErrDamaged, n)
	}
	text := make([]byte, n+4)
	if _, err := f.ReadAt(text, at); err != nil && err != io.EOF {
		return 0, err
	}
	if crc32.Checksum(text[:n], castagnoli) != binary.BigEndian.Uint32(text[n:]) {
		return 0, fmt.Errorf("%w: wrong header checksum", ErrDamaged)
	}
	if err := json.Unmarshal(text[:n], &b.Header); err != nil {
		return 0, fmt.Errorf("%w: cannot parse the header: %w", ErrDamaged, err)
	}
	if b.Format != Format {
		return 0, fmt.Errorf("%w: format %d, this build supports %d", ErrNewer, b.Format, Format)
	}
	return at + n + 4, nil
}
