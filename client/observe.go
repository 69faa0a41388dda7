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
// the token from the previous page, empty for the first; size 0 means 100, and the maximum is
// 1,000.
func (a *Admin) Sessions(ctx context.Context, pageToken string, size uint32) (sessions []*pb.Session, next string, err error) {
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.ListSessionsResponse, error) {
		return pb.NewLockServiceClient(conn).ListSessions(ctx, &pb.ListSessionsRequest{PageToken: pageToken, PageSize: size})
	})
	if err != nil {
		return nil, "", &lockstep.OpError{Op: "sessions", Err: err}
	}
	return r.GetSessions(), r.GetNextPageToken(), nil
}

// Watch is WatchFrom with an event number in the cluster's current history.
func (a *Admin) Watch(ctx context.Context, prefix string, after uint64) iter.Seq2[*pb.Event, error] {
	return a.WatchFrom(ctx, prefix, Position{Number: after})
}

// WatchFrom yields the events of the names that begin with prefix (all names if it is empty), as
// they happen, starting after the position after; number zero there means only new events. They
// come in order, none repeated and none skipped, even across lost connections and changes of
// leader. The sequence ends after a non-nil error: the end of ctx, [lockstep.ErrUnavailable] if no
// node has served for [Config.UnavailableAfter], [ErrTwoClusters], or [lockstep.ErrInvalid] if the
// service no longer has the events after the position.
//
// Only a [*HistoryChangedError] does not end it: the position belongs to another history, as after
// a restore. A caller that continues gets the events of the current history, from the oldest
// available.
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
	request  *pb.WatchRequest // its After is the position reached, in the history of its Cluster
	yield    func(*pb.Event, error) bool
	began    func()        // called when a stream has started to deliver; nil: not needed
	live     bool          // a stream has delivered something from the current history
	exact    bool          // After is where to continue even if it is zero
	enough   bool          // the caller wants no more
	lost     error         // why it cannot continue from there
	servedAt time.Duration // when a node was last known to serve
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
		if errors.Is(err, io.EOF) { // the node is shutting down cleanly
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

// start records where a stream begins.
func (w *watch) start(stream grpc.ServerStreamingClient[pb.WatchResponse], first *pb.WatchResponse) error {
	header, err := stream.Header()
	if err != nil {
		return err
	}
	if ids := header.Get(clusterKey); len(ids) > 0 {
		w.request.Cluster = ids[0]
	}
	if w.request.GetFromOldest() && first.GetReached() > 0 {
		w.lost = fmt.Errorf("%w: some of the events up to %d are no longer available", lockstep.ErrInvalid, first.GetReached())
		return w.lost
	}
	w.live, w.exact = true, true
	w.admin.guard.tally.served()
	if w.began != nil {
		w.began()
	}
	return nil
}

// historyChanged checks whether a stream was refused because its position belongs to another
// history. If so, the watch continues from the oldest event of the current one.
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
