package client

import (
	"context"
	"errors"
	"fmt"
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

// Sessions reads one page of the sessions of all clients, in the order of their ids. pageToken is
// that of the last page, empty for the first; size 0 means 100, and 1,000 is the most.
func (a *Admin) Sessions(ctx context.Context, pageToken string, size uint32) (sessions []*pb.Session, next string, err error) {
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.ListSessionsResponse, error) {
		return pb.NewLockServiceClient(conn).ListSessions(ctx, &pb.ListSessionsRequest{PageToken: pageToken, PageSize: size})
	})
	if err != nil {
		return nil, "", &lockstep.OpError{Op: "sessions", Err: err}
	}
	return r.GetSessions(), r.GetNextPageToken(), nil
}

// Watch is WatchFrom with the number of an event of the cluster as it is now.
func (a *Admin) Watch(ctx context.Context, prefix string, after uint64) iter.Seq2[*pb.Event, error] {
	return a.WatchFrom(ctx, prefix, Position{Number: after})
}

// WatchFrom yields the events of the names that begin with prefix, all with an empty one, as they
// happen, after the position after; its number zero means only new ones. They come in order, none
// twice and none left out, over lost connections and leaders too. The sequence ends after a non-nil
// error: the end of ctx, [lockstep.ErrUnavailable] when no node has served for
// [Config.UnavailableAfter], [ErrTwoClusters], or [lockstep.ErrInvalid] when the service has
// forgotten what came after the position.
//
// A [*HistoryChangedError] alone does not end it: the position is of another history, as after a
// restore. A caller that goes on gets the events of the present history, from the oldest that is
// still there.
func (a *Admin) WatchFrom(ctx context.Context, prefix string, after Position) iter.Seq2[*pb.Event, error] {
	return func(yield func(*pb.Event, error) bool) {
		w := newWatch(a, prefix, after, yield)
		if err := w.follow(ctx); err != nil {
			yield(nil, &lockstep.OpError{Op: "watch", Lock: prefix, Err: err})
		}
	}
}

// A watch is one call of Watch, over as many streams as it takes.
type watch struct {
	admin    *Admin
	request  *pb.WatchRequest // its After is what was reached, in the history of its Cluster
	yield    func(*pb.Event, error) bool
	began    func()        // called when a stream has begun to tell; nil: nobody asks
	live     bool          // a stream has told something in the present history
	exact    bool          // After is where to go on even when it is zero
	enough   bool          // the caller wants no more
	lost     error         // why it cannot go on from there
	servedAt time.Duration // when a node last was known to serve
}

func newWatch(a *Admin, prefix string, after Position, yield func(*pb.Event, error) bool) *watch {
	w := &watch{admin: a, yield: yield, servedAt: a.cfg.Clock.Now()}
	w.request = &pb.WatchRequest{Prefix: prefix, After: after.Number, Cluster: after.Cluster}
	return w
}

// follow goes from node to node until the caller has enough.
func (w *watch) follow(ctx context.Context) error {
	backoff := lease.Backoff{Base: firstPause, Max: longestWait}
	if err := w.admin.guard.check(ctx); err != nil {
		return err
	}
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
		switch changed := w.historyChanged(err); {
		case w.enough || changed != nil && !w.yield(nil, &lockstep.OpError{Op: "watch", Lock: w.request.GetPrefix(), Err: changed}):
			return nil
		case changed != nil:
			continue
		case w.lost != nil:
			return w.lost
		case ctx.Err() != nil:
			return ended(ctx)
		}
		again, err := w.admin.again(ctx, addr, err)
		if !again {
			return err
		}
		now := w.admin.cfg.Clock.Now()
		if answered {
			w.servedAt = now
			backoff.Reset()
		}
		if after := w.admin.cfg.UnavailableAfter; after >= 0 && now > w.servedAt+after {
			return w.admin.guard.tally.summary(err)
		}
	}
}

// read follows one stream to its end, which is always an error, unless the caller has enough.
func (w *watch) read(ctx context.Context, conn *grpc.ClientConn) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.request.FromOldest = w.exact && w.request.GetAfter() == 0
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
		if !answered {
			if err := w.start(stream, r); err != nil {
				return true, err
			}
			answered = true
		}
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

// start takes note of where a stream begins.
func (w *watch) start(stream grpc.ServerStreamingClient[pb.WatchResponse], first *pb.WatchResponse) error {
	header, err := stream.Header()
	if err != nil {
		return err
	}
	if ids := header.Get(clusterKey); len(ids) > 0 {
		w.request.Cluster = ids[0]
	}
	if w.request.GetFromOldest() && first.GetReached() > 0 {
		w.lost = fmt.Errorf("%w: the events up to %d are no longer all available", lockstep.ErrInvalid, first.GetReached())
		return w.lost
	}
	w.live, w.exact = true, true
	w.admin.guard.tally.served()
	if w.began != nil {
		w.began()
	}
	return nil
}

// historyChanged looks at whether a stream was refused because its position is of another history.
// Then the watch goes on from the oldest event of the present one.
func (w *watch) historyChanged(err error) *HistoryChangedError {
	e, r := wireError(err), w.request
	if e.GetReason() != pb.Reason_REASON_OUT_OF_RANGE || e.GetField() != "cluster" && !(e.GetField() == "after" && r.GetAfter() > e.GetOldest()) {
		return nil
	}
	changed := &HistoryChangedError{
		Was: Position{r.GetCluster(), r.GetAfter()}, Live: w.live,
		Cluster: w.admin.Cluster(), Oldest: e.GetOldest(), Newest: e.GetNewest(),
	}
	r.Cluster, r.After = "", e.GetOldest()
	w.live, w.exact = false, true
	return changed
}
