package storage

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A snapshot file is
//
//	"LSSNAP" version(2)
//	length(4) header checksum(4)
//	length(4) data checksum(4), for each chunk
//	0(4) sum of the lengths(8) checksum(4)
//
// with little-endian numbers. The header is group(4) index(8) term(8), the length of the cluster's
// id (1) and the id, and the members. A checksum is CRC-32C over all data so far, from the header
// on, so chunks that are swapped or missing are detected too.
const (
	snapshotMagic   = "LSSNAP"
	snapshotVersion = 1

	// chunkSize is how much data is buffered for one checksum.
	chunkSize = 256 << 10
	// writeOutEvery is how much of a file is written before the kernel is told to write it to disk.
	// Otherwise the sync at the end writes all of it at once, and the syncs of the log wait for
	// that. Nobody waits for the partial writes.
	writeOutEvery = 4 << 20
	// headerLimit bounds the header: 64 KiB are thousands of members.
	headerLimit = 64 << 10
)

// A SnapshotWriter writes one snapshot file. It is used by one goroutine, and ends with Commit or
// Abort.
type SnapshotWriter struct {
	s     *Store
	ref   snapshotRef
	tmp   string
	f     vfs.File
	crc   uint32
	total uint64
	buf   []byte // the chunk that is being filled, after room for its length
	err   error  // sticky
}

func (s *Store) newWriter(ref snapshotRef, meta *raftpb.SnapshotMetadata) (*SnapshotWriter, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	tmp := ref.name() + tmpSuffix
	s.mu.Lock()
	busy := s.mu.writing[tmp]
	s.mu.writing[tmp] = true
	s.mu.Unlock()
	if busy {
		return nil, fmt.Errorf("storage: snapshot %s is already being written", ref.name())
	}
	w := &SnapshotWriter{s: s, ref: ref, tmp: tmp, buf: make([]byte, 4, 4+chunkSize+4)}
	header, err := s.snapshotHeader(ref, meta)
	if err == nil {
		// Before it is written: a file may modify the buffers given to Write.
		w.crc = crc32.Checksum(header[12:len(header)-4], castagnoli)
		w.f, err = s.fs.Create(s.snapshotPath(tmp), vfs.WriteCategoryUnspecified)
	}
	if err == nil {
		w.f = vfs.NewSyncingFile(w.f, vfs.SyncingFileOptions{NoSyncOnClose: true, BytesPerSync: writeOutEvery})
		_, err = w.f.Write(header)
	}
	if err != nil {
		w.Abort()
		return nil, fmt.Errorf("storage: snapshot %s: %w", ref.name(), err)
	}
	return w, nil
}

func (s *Store) snapshotHeader(ref snapshotRef, meta *raftpb.SnapshotMetadata) ([]byte, error) {
	b := append(make([]byte, 0, 256), snapshotMagic...)
	b = binary.LittleEndian.AppendUint16(b, snapshotVersion)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, ref.group)
	b = binary.LittleEndian.AppendUint64(b, ref.index)
	b = binary.LittleEndian.AppendUint64(b, ref.term)
	b = append(b, byte(len(s.id.cluster)))
	b = append(b, s.id.cluster...)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, meta.GetConfState())
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)-12))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[12:], castagnoli)), nil
}

// Write adds a part of the content.
func (w *SnapshotWriter) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 && w.err == nil {
		k := min(len(p), 4+chunkSize-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p, n = p[k:], n+k
		if len(w.buf) == 4+chunkSize {
			w.flush()
		}
	}
	return n, w.err
}

// flush writes the chunk.
func (w *SnapshotWriter) flush() {
	if w.err != nil || len(w.buf) == 4 {
		return
	}
	data := w.buf[4:]
	w.crc = crc32.Update(w.crc, castagnoli, data)
	w.total += uint64(len(data))
	binary.LittleEndian.PutUint32(w.buf, uint32(len(data)))
	_, w.err = w.f.Write(binary.LittleEndian.AppendUint32(w.buf, w.crc))
	w.buf = w.buf[:4]
}

// Commit makes the file durable under its final name. Nothing else may be called afterwards.
func (w *SnapshotWriter) Commit() error {
	w.flush()
	if w.err == nil {
		w.err = w.finish()
	}
	if w.err != nil {
		err := fmt.Errorf("storage: write snapshot %s: %w", w.ref.name(), w.err)
		w.Abort()
		return err
	}
	w.release()
	w.s.keep(w.ref)
	w.s.prune(w.ref.group)
	return nil
}

func (w *SnapshotWriter) finish() error {
	end := binary.LittleEndian.AppendUint64(make([]byte, 4, 16), w.total)
	w.crc = crc32.Update(w.crc, castagnoli, end)
	if _, err := w.f.Write(binary.LittleEndian.AppendUint32(end, w.crc)); err != nil {
		return err
	}
	err := w.f.Sync()
	err = errors.Join(err, w.f.Close())
	w.f = nil
	if err != nil {
		return err
	}
	s := w.s
	if err := s.fs.Rename(s.snapshotPath(w.tmp), s.snapshotPath(w.ref.name())); err != nil {
		return err
	}
	return syncDir(s.fs, s.path(snapshotsName))
}

// Abort abandons the file. It may be called after any other method.
func (w *SnapshotWriter) Abort() {
	if w.f != nil {
		w.f.Close() // the file is removed: its error says nothing
		w.f = nil
	}
	if w.release() {
		if err := w.s.fs.Remove(w.s.snapshotPath(w.tmp)); err != nil {
			w.s.log.Debug("unfinished snapshot not removed", "file", w.tmp, "err", err)
		}
	}
}

// release frees the temporary name, and reports whether it was in use.
func (w *SnapshotWriter) release() bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	taken := w.s.mu.writing[w.tmp]
	delete(w.s.mu.writing, w.tmp)
	return taken
}

// A snapshotReader returns the content of a file, chunk by chunk as checked.
type snapshotReader struct {
	f     vfs.File
	r     *bufio.Reader
	crc   uint32
	total uint64
	chunk []byte
	rest  []byte // of chunk, not returned yet
	err   error  // sticky
}

func (s *Store) openSnapshot(ref snapshotRef) (*snapshotReader, *raftpb.SnapshotMetadata, error) {
	f, err := s.fs.Open(s.snapshotPath(ref.name()))
	if err != nil {
		return nil, nil, fmt.Errorf("storage: open snapshot: %w", err)
	}
	r := &snapshotReader{f: f, r: bufio.NewReaderSize(f, 64<<10)}
	meta, err := r.header(s.id.cluster, ref)
	if err != nil {
		return nil, nil, fmt.Errorf("storage: snapshot %s: %w", ref.name(), errors.Join(err, f.Close()))
	}
	return r, meta, nil
}

var (
	errChecksum = errors.New("wrong checksum")
	errShort    = errors.New("truncated")
)

func (r *snapshotReader) header(cluster string, ref snapshotRef) (*raftpb.SnapshotMetadata, error) {
	var pre [12]byte
	if _, err := io.ReadFull(r.r, pre[:]); err != nil || string(pre[:6]) != snapshotMagic {
		return nil, errors.New("not a snapshot")
	}
	if v := binary.LittleEndian.Uint16(pre[6:]); v != snapshotVersion {
		return nil, fmt.Errorf("version %d, this program supports %d: %w", v, snapshotVersion, ErrNewer)
	}
	n := binary.LittleEndian.Uint32(pre[8:])
	if n < 21 || n > headerLimit {
		return nil, fmt.Errorf("header of %d bytes", n)
	}
	h, err := r.checked(n)
	if err != nil {
		return nil, err
	}
	index, term, k := binary.LittleEndian.Uint64(h[4:]), binary.LittleEndian.Uint64(h[12:]), 21+int(h[20])
	if k > len(h) || binary.LittleEndian.Uint32(h) != ref.group || !ref.same(index, term) || string(h[21:k]) != cluster {
		return nil, errors.New("its cluster or position does not match its name")
	}
	conf := new(raftpb.ConfState)
	if err := proto.Unmarshal(h[k:], conf); err != nil {
		return nil, err
	}
	return &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: conf}, nil
}

// checked reads n bytes and the checksum after them.
func (r *snapshotReader) checked(n uint32) ([]byte, error) {
	if need := int(n) + 4; cap(r.chunk) < need {
		r.chunk = make([]byte, need)
	}
	b := r.chunk[:n+4]
	if _, err := io.ReadFull(r.r, b); err != nil {
		return nil, errShort
	}
	r.crc = crc32.Update(r.crc, castagnoli, b[:n])
	if binary.LittleEndian.Uint32(b[n:]) != r.crc {
		return nil, errChecksum
	}
	return b[:n], nil
}

func (r *snapshotReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.rest, r.err = r.next()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next reads a chunk. io.EOF means that the end was reached and is correct.
func (r *snapshotReader) next() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return nil, errShort
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > chunkSize {
		return nil, fmt.Errorf("chunk of %d bytes", n)
	}
	if n > 0 {
		r.total += uint64(n)
		return r.checked(n)
	}
	r.crc = crc32.Update(r.crc, castagnoli, head[:])
	end, err := r.checked(8)
	if err != nil {
		return nil, err
	}
	if got := binary.LittleEndian.Uint64(end); got != r.total {
		return nil, fmt.Errorf("%d bytes, %d were written", r.total, got)
	}
	if _, err := r.r.ReadByte(); err != io.EOF {
		return nil, errors.New("trailing bytes")
	}
	return nil, io.EOF
}

func (r *snapshotReader) Close() error { return r.f.Close() }
