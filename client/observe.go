package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/lease"
)

// Sessions reads one page of the sessions of all clients, in the order of their ids. pageToken is that of the
// last page, empty for the first; size 0 means 100, and 1,000 is the most.
func (a *Admin) Sessions(ctx context.Context, pageToken string, size uint32) (sessions []*pb.Session, next string, err error) {
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.ListSessionsResponse, error) {
		return pb.NewLockServiceClient(conn).ListSessions(ctx, &pb.ListSessionsRequest{PageToken: pageToken, PageSize: size})
	})
	if err != nil {
		return nil, "", &lockstep.OpError{Op: "sessions", Err: err}
	}
	return r.GetSessions(), r.GetNextPageToken(), nil
}

// Watch yields the events of the names that begin with prefix, all with an empty one, as they happen, behind the event with the number
// after; zero means only new ones. They come in order, none twice and none left out, over lost connections
// and leaders too. The sequence ends after a non-nil error: the end of ctx, [lockstep.ErrUnavailable] when no node has served
// for [Config.UnavailableAfter], or [lockstep.ErrInvalid] when the service has forgotten what came after the number.
func (a *Admin) Watch(ctx context.Context, prefix string, after uint64) iter.Seq2[*pb.Event, error] {
	return func(yield func(*pb.Event, error) bool) {
		w := &watch{admin: a, request: &pb.WatchRequest{Prefix: prefix, After: after}, yield: yield}
		w.servedAt = a.cfg.Clock.Now()
		if err := w.follow(ctx); err != nil {
			yield(nil, &lockstep.OpError{Op: "watch", Lock: prefix, Err: err})
		}
	}
}

// A watch is one call of Watch, over as many streams as it takes.
type watch struct {
	admin    *Admin
	request  *pb.WatchRequest // its After is what was reached
	yield    func(*pb.Event, error) bool
	began    func()        // called when a stream has begun to tell; nil: nobody asks
	enough   bool          // the caller wants no more
	servedAt time.Duration // when a node last was known to serve
}

// follow goes from node to node until the caller has enough.
func (w *watch) follow(ctx context.Context) error {
	backoff := lease.Backoff{Base: firstPause, Max: longestWait}
	for {
		addr, pause, conn, err := w.admin.node()
		if err != nil {
			return err
		}
		if pause {
			select {
			case <-ctx.Done():
			case <-time.After(backoff.Next()):
			}
		}
		answered, err := w.read(ctx, conn)
		switch {
		case w.enough:
			return nil
		case ctx.Err() != nil:
			return ended(ctx)
		case !w.admin.elsewhere(addr, err):
			return fromCall(err)
		}
		now := w.admin.cfg.Clock.Now()
		if answered {
			w.servedAt = now
			backoff.Reset()
		}
		if after := w.admin.cfg.UnavailableAfter; after >= 0 && now > w.servedAt+after {
			return fromCall(err)
		}
	}
}

// read follows one stream to its end, which is always an error, unless the caller has enough.
func (w *watch) read(ctx context.Context, conn *grpc.ClientConn) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewLockServiceClient(conn).Watch(ctx, w.request)
	if err != nil {
		return false, err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) { // the node goes down in good order
			err = status.Error(codes.Unavailable, "the node ended the watch")
		}
		if err != nil {
			return answered, err
		}
		if !answered && w.began != nil {
			w.began()
		}
		answered = true
		for _, e := range r.GetEvents() {
			if e.GetNumber() <= w.request.GetAfter() {
				continue
			}
			w.request.After = e.GetNumber()
			if !w.yield(e, nil) {
				w.enough = true
				return true, nil
			}
		}
		w.request.After = max(w.request.GetAfter(), r.GetReached())
	}
}
