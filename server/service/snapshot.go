package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

const (
	// saveChunk is how much of a backup one message carries.
	saveChunk = 64 << 10
	// saveTimeout bounds one SnapshotSave: about 13 MB/s are produced, and a reader may be slower.
	saveTimeout = 30 * time.Minute
	// A reader has saveSlack, and a second for each saveRate bytes: only one backup runs at a time,
	// and nobody may hold its place.
	saveSlack = 30 * time.Second
	saveRate  = 256 << 10
)

// A saver is a node that can be backed up.
type saver interface {
	Backup(ctx context.Context, w io.Writer, version string) error
}

// SnapshotSave streams a backup of what this node has applied. One runs at a time.
func (s *Service) SnapshotSave(_ *pb.SnapshotSaveRequest, stream grpc.ServerStreamingServer[pb.SnapshotSaveResponse]) error {
	n, ok := s.cfg.Node.(saver)
	if !ok {
		return s.UnimplementedAdminServiceServer.SnapshotSave(nil, stream)
	}
	if !s.saving.TryLock() {
		return protocol.Err(overloaded())
	}
	defer s.saving.Unlock()
	ctx, cancel := context.WithTimeout(stream.Context(), saveTimeout)
	defer cancel()
	go func() { // ends with the call
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	to := &chunks{stream: stream}
	out := bufio.NewWriterSize(to, saveChunk)
	err := n.Backup(ctx, out, s.cfg.Version)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		s.log.Warn("backup not saved", "to", remote(stream.Context()), "err", err)
	} else {
		s.log.Info("backup saved", "to", remote(stream.Context()), "bytes", to.sent)
	}
	if errors.Is(err, node.ErrNoState) || errors.Is(err, node.ErrStopped) {
		return protocol.Err(&pb.Error{Reason: pb.Reason_REASON_UNAVAILABLE, Message: err.Error()})
	}
	return err
}

// chunks sends what is written, and ends when the reader is too slow. The time that the backup
// takes to be made does not count.
type chunks struct {
	stream grpc.ServerStreamingServer[pb.SnapshotSaveResponse]
	sent   int64
	waited time.Duration
}

func (c *chunks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		k := min(len(rest), saveChunk)
		begin := time.Now()
		if err := c.stream.Send(&pb.SnapshotSaveResponse{Chunk: rest[:k:k]}); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[k:]
		c.waited += time.Since(begin)
		c.sent += int64(k)
		if e := readsTooSlowly(c.sent, c.waited); e != nil {
			return len(p) - len(rest), e
		}
	}
	return len(p), nil
}

// readsTooSlowly refuses a reader that took so few bytes of a backup in the time that it was waited
// for.
func readsTooSlowly(sent int64, waited time.Duration) error {
	if waited <= saveSlack+time.Duration(sent/saveRate)*time.Second {
		return nil
	}
	message := fmt.Sprintf("the backup is read too slowly: %d bytes in %v; read at least %d KiB a second", sent, waited.Round(time.Second), saveRate>>10)
	return protocol.Err(&pb.Error{Reason: pb.Reason_REASON_OVERLOADED, Message: message})
}
