package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/server/storage"
)

// maxParts and maxWaiting bound the parts of a snapshot waiting to be written, and their bytes. If
// the disk falls that far behind, the snapshot is sacrificed, not the memory. A part that is larger
// than that waits alone.
const (
	maxParts   = 256
	maxWaiting = 16 << 20
)

// A snapshotWriter writes the replica's own snapshots.
type snapshotWriter struct {
	store *storage.Store
	inbox *inbox
	log   *slog.Logger
	parts chan *replica.SnapshotPart
	count *counts

	waiting atomic.Int64 // bytes of parts

	skip uint64 // used by the loop: index of an abandoned snapshot
}

func newSnapshotWriter(s *storage.Store, b *inbox, c *counts, log *slog.Logger) *snapshotWriter {
	return &snapshotWriter{store: s, inbox: b, count: c, log: log, parts: make(chan *replica.SnapshotPart, maxParts)}
}

// add hands a part over. The loop calls it; it never blocks.
func (w *snapshotWriter) add(p *replica.SnapshotPart) {
	index := p.Metadata.GetIndex()
	if p.First {
		w.skip = 0
	}
	if w.skip == index {
		return
	}
	size := int64(len(p.Chunk))
	if waiting := w.waiting.Add(size); waiting == size || waiting <= maxWaiting {
		select {
		case w.parts <- p:
			return
		default:
		}
	}
	w.waiting.Add(-size)
	w.skip = index
	w.log.Warn("snapshot abandoned: disk too slow", "index", index)
	w.inbox.push(replica.SnapshotFailed{Index: index})
}

// run writes until ctx is done. A failed snapshot is made again later; the log is kept until then.
func (w *snapshotWriter) run(ctx context.Context) error {
	var file *storage.SnapshotWriter
	var index uint64 // of the snapshot in file
	defer func() {
		if file != nil {
			file.Abort()
		}
	}()
	for {
		var p *replica.SnapshotPart
		select {
		case <-ctx.Done():
			return nil
		case p = <-w.parts:
			w.waiting.Add(-int64(len(p.Chunk)))
		}
		if file != nil && (p.First || p.Metadata.GetIndex() != index) {
			file.Abort()
			file = nil
		}
		if file == nil && !p.First {
			continue // the rest of a failed one
		}
		var err error
		if file, err = w.write(file, p); err != nil {
			w.count.failed.Add(1)
			w.log.Warn("snapshot not written", "index", p.Metadata.GetIndex(), "err", err)
			w.inbox.push(replica.SnapshotFailed{Index: p.Metadata.GetIndex()})
		}
		index = p.Metadata.GetIndex()
	}
}

// write writes one part, and returns the file for the next one.
func (w *snapshotWriter) write(file *storage.SnapshotWriter, p *replica.SnapshotPart) (*storage.SnapshotWriter, error) {
	var err error
	if p.First {
		if file, err = w.store.CreateSnapshot(group, p.Metadata); err != nil {
			return nil, err
		}
	}
	if _, err = file.Write(p.Chunk); err != nil {
		file.Abort()
		return nil, err
	}
	if !p.Last {
		return file, nil
	}
	if err := file.Commit(); err != nil {
		return nil, err
	}
	w.count.written.Add(1)
	w.log.Info("snapshot written", "index", p.Metadata.GetIndex())
	w.inbox.push(replica.SnapshotWritten{Index: p.Metadata.GetIndex()})
	return nil, nil
}

// senders are the snapshots being sent to peers, at most one to each.
type senders struct {
	wg sync.WaitGroup
	mu struct {
		sync.Mutex
		to map[uint64]bool
	}
}

// claim reports whether no other snapshot is being sent to the peer.
func (s *senders) claim(to uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.to[to] {
		return false
	}
	if s.mu.to == nil {
		s.mu.to = make(map[uint64]bool)
	}
	s.mu.to[to] = true
	return true
}

func (s *senders) release(to uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.to, to)
}

// sendSnapshot sends the file that a MsgSnap refers to, and reports once how that went. The loop
// calls it.
func (n *Node) sendSnapshot(ctx context.Context, msg *raftpb.Message) {
	to := msg.GetTo()
	if !n.sending.claim(to) {
		n.inbox.push(replica.SnapshotSent{To: to})
		return
	}
	n.sending.wg.Go(func() {
		unreadable, err := n.streamSnapshot(ctx, msg)
		index := msg.GetSnapshot().GetMetadata().GetIndex()
		switch {
		case err == nil:
			n.counts.sent.Add(1)
			n.log.Info("snapshot sent", "index", index, "to", n.nameOf(to))
		case ctx.Err() == nil:
			n.log.Warn("snapshot not sent", "index", index, "err", err)
		}
		n.sending.release(to)
		sent := replica.SnapshotSent{To: to, OK: err == nil}
		if unreadable {
			sent.Unreadable = index
		}
		n.inbox.push(sent)
	})
}

// streamSnapshot sends the file, and reports whether it failed because the file could not be read.
func (n *Node) streamSnapshot(ctx context.Context, msg *raftpb.Message) (unreadable bool, err error) {
	file, err := n.store.OpenSnapshot(group, msg.GetSnapshot().GetMetadata())
	if err != nil {
		return true, err
	}
	content := &watchedReader{r: file}
	err = errors.Join(n.transport.SendSnapshot(ctx, group, msg, content), file.Close())
	return content.failed, err
}

// A watchedReader remembers whether reading failed.
type watchedReader struct {
	r      io.Reader
	failed bool
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.failed = w.failed || err != nil && !errors.Is(err, io.EOF)
	return n, err
}

// receiveSnapshot makes a peer's snapshot durable, reads it back and gives it to the replica.
func (n *Node) receiveSnapshot(msg *raftpb.Message, content io.Reader) error {
	meta := msg.GetSnapshot().GetMetadata()
	file, err := n.store.ReceiveSnapshot(group, meta)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, content); err != nil {
		file.Abort()
		return err
	}
	if err := file.Commit(); err != nil {
		return err
	}
	m, err := n.loadMachine(meta)
	if errors.Is(err, command.ErrNewer) {
		n.fatal(err) // it would be sent again and again, and be no more readable
	}
	if err != nil {
		return err
	}
	n.counts.received.Add(1)
	n.log.Info("snapshot received", "index", meta.GetIndex(), "from", n.nameOf(msg.GetFrom()))
	n.inbox.push(replica.SnapshotReceived{Message: msg, Machine: m})
	return nil
}

// loadMachine reads the state in a snapshot file.
func (n *Node) loadMachine(meta *raftpb.SnapshotMetadata) (*machine.Machine, error) {
	m, err := loadState(n.store, meta)
	if err != nil {
		return nil, err
	}
	if err := n.settle(lifeOf(m)); err != nil {
		return nil, err
	}
	if n.cfg.Loaded != nil {
		n.cfg.Loaded(m)
	}
	return m, nil
}

func loadState(store *storage.Store, meta *raftpb.SnapshotMetadata) (*machine.Machine, error) {
	content, err := store.OpenSnapshot(group, meta)
	if err != nil {
		return nil, err
	}
	m, err := machine.Restore(content)
	if err = errors.Join(err, content.Close()); err != nil {
		return nil, fmt.Errorf("node: read the snapshot at %d: %w", meta.GetIndex(), err)
	}
	return m, nil
}
