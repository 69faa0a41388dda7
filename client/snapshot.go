package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// SaveSnapshot writes a backup of the lock table to w, from the first of Config.Endpoints that can
// provide one, leader or not. It contains what that node had applied at the time of the request.
// After the first byte, a failure is not retried on another node: w then holds part of a backup,
// without its checksum.
func (a *Admin) SaveSnapshot(ctx context.Context, w io.Writer) error {
	if err := a.guard.check(ctx); err != nil {
		return err
	}
	var errs []error
	var asked []NodeStatus
	for _, e := range a.cfg.Endpoints {
		n, err := a.saveFrom(ctx, e, w)
		if err == nil {
			return nil
		}
		asked = append(asked, NodeStatus{Endpoint: e, Err: err})
		errs = append(errs, fmt.Errorf("%s: %w", e, err))
		if n > 0 || ctx.Err() != nil || errors.Is(err, ErrTwoClusters) {
			break
		}
	}
	if !slices.ContainsFunc(asked, func(n NodeStatus) bool { return !isOutage(n.Err) }) {
		return OutageOf(asked)
	}
	return errors.Join(errs...)
}

// saveFrom returns how many bytes it wrote.
func (a *Admin) saveFrom(ctx context.Context, endpoint string, w io.Writer) (n int, err error) {
	conn, err := a.conn(endpoint)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewAdminServiceClient(conn).SnapshotSave(ctx, &pb.SnapshotSaveRequest{})
	if err != nil {
		return 0, statusError(endpoint, err)
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, statusError(endpoint, err)
		}
		k, err := w.Write(r.GetChunk())
		if n += k; err != nil {
			return n, err
		}
	}
}
