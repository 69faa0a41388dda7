package service

import (
	"bufio"
	"context"
	"errors"
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
	// saveTimeout bounds one SnapshotSave: about 13 MB/s are made, and a reader may be slower.
	saveTimeout = 30 * time.Minute
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
	out := bufio.NewWriterSize(chunks{stream}, saveChunk)
	err := n.Backup(ctx, out, s.cfg.Version)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		s.log.Warn("backup not saved", "to", remote(stream.Context()), "err", err)
	}
	if errors.Is(err, node.ErrNoState) || errors.Is(err, node.ErrStopped) {
		return protocol.Err(&pb.Error{Reason: pb.Reason_REASON_UNAVAILABLE, Message: err.Error()})
	}
	return err
}

// chunks sends what is written.
type chunks struct {
	stream grpc.ServerStreamingServer[pb.SnapshotSaveResponse]
}

func (c chunks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		k := min(len(rest), saveChunk)
		if err := c.stream.Send(&pb.SnapshotSaveResponse{Chunk: rest[:k:k]}); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[k:]
	}
	return len(p), nil
}
