package service

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

const (
	watchBatch = 256
	// watchIdle is how often a watch without events tells how far it has come.
	watchIdle = 10 * time.Second
	// newestTimeout bounds the query for how far the cluster is, which takes one round of
	// heartbeats.
	newestTimeout = 5 * time.Second
)

// Watch sends the events of the history as this node applies them. If a watcher reads so slowly
// that the feed has dropped what comes next, or asks for events that are gone, it gets an error
// that says so.
func (s *Service) Watch(r *pb.WatchRequest, g pb.LockService_WatchServer) error {
	if e := protocol.CheckWatch(r); e != nil {
		return protocol.Err(e)
	}
	if s.cfg.Feed == nil {
		return protocol.Err(&pb.Error{Reason: pb.Reason_REASON_UNSUPPORTED, Message: "this node does not keep events to watch"})
	}
	c := watcher{s.accountOf(g.Context()), s.origin(g.Context()).Address}
	if e := s.watches.add(c); e != nil {
		return s.refuse(e)
	}
	defer s.watches.remove(c)
	w, err := s.begin(r, g)
	if err != nil {
		return err
	}
	err = w.run()
	if e := protocol.FromErr(err); e.GetReason() == pb.Reason_REASON_OUT_OF_RANGE {
		s.trouble.warn("watch closed", slog.String("client", remote(g.Context())), slog.Any("error", err))
	}
	return err
}

// begin determines where a watch begins, and refuses a number of another history.
func (s *Service) begin(r *pb.WatchRequest, g pb.LockService_WatchServer) (*watch, error) {
	st, err := s.started(g.Context(), r.GetCluster() != "")
	if err != nil {
		return nil, err
	}
	// Checked again, since the node may not have known its cluster when the call arrived.
	if err := s.pin(g.Context(), pb.LockService_Watch_FullMethodName, g.SetHeader); err != nil {
		return nil, err
	}
	w := &watch{svc: s, grpc: g, prefix: r.GetPrefix(), reached: r.GetAfter(), base: st.Counts.Events}
	oldest, last := s.cfg.Feed.bounds(w.base)
	switch {
	case r.GetCluster() != "" && r.GetCluster() != st.ClusterID:
		return nil, protocol.Err(protocol.AnotherHistory(r.GetCluster(), r.GetAfter(), oldest, last))
	case r.GetFromOldest():
		w.reached = oldest
	case r.GetAfter() == 0:
		w.reached = last
	case r.GetAfter() > last: // the cluster may be further than this node
		newest, known, err := s.newestEvent(g.Context())
		if err != nil {
			return nil, err
		}
		if known && r.GetAfter() > newest {
			return nil, protocol.Err(protocol.AnotherHistory("", r.GetAfter(), oldest, newest))
		}
	}
	return w, nil
}

// newestEvent returns the number of the cluster's newest event, as known to a majority. known is
// false when the leader's build does not report it.
func (s *Service) newestEvent(ctx context.Context) (newest uint64, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, newestTimeout)
	defer cancel()
	// Any name: the number covers all names.
	req := &pb.GetLockRequest{Name: "lockstep/watch", WaiterLimit: 1}
	info := &grpc.UnaryServerInfo{FullMethod: pb.LockService_GetLock_FullMethodName}
	resp, err := s.route(ctx, req, info, func(ctx context.Context, _ any) (any, error) { return s.GetLock(ctx, req) })
	if err != nil {
		return 0, false, err
	}
	lock := resp.(*pb.GetLockResponse)
	return lock.GetNewestEvent(), lock.NewestEvent != nil, nil
}

// started waits until the node has read its directory and, if cluster is set, knows its cluster.
func (s *Service) started(ctx context.Context, cluster bool) (node.Status, error) {
	for {
		if st := s.cfg.Node.Status(); st.Role != node.Starting && (st.ClusterID != "" || !cluster) {
			return st, nil
		}
		select {
		case <-s.stopping:
			return node.Status{}, s.farewell()
		case <-ctx.Done():
			return node.Status{}, status.FromContextError(ctx.Err()).Err()
		case <-time.After(healthEvery):
		}
	}
}

// A watch is one call of Watch.
type watch struct {
	svc     *Service
	grpc    pb.LockService_WatchServer
	prefix  string
	reached uint64 // all matching events up to this one were sent
	base    uint64
}

// run sends until the call has to end, and returns the reason. The first message goes out at once:
// it says where the watch begins.
func (w *watch) run() error {
	p := w.svc.cfg.Feed.after(w.reached, w.base, watchBatch)
	if !p.gone {
		if err := w.grpc.Send(&pb.WatchResponse{Reached: w.reached}); err != nil {
			return err
		}
	}
	for {
		switch p := w.svc.cfg.Feed.after(w.reached, w.base, watchBatch); {
		case p.gone:
			return protocol.Err(protocol.EventsGone(w.reached, p.oldest))
		case len(p.events) > 0:
			if err := w.send(p.events); err != nil {
				return err
			}
		default:
			if err := w.wait(p.more); err != nil {
				return err
			}
		}
	}
}

func (w *watch) send(events []command.Event) error {
	out := &pb.WatchResponse{}
	for _, e := range events {
		if strings.HasPrefix(e.Name, w.prefix) {
			out.Events = append(out.Events, protocol.ToEvent(e))
		}
	}
	w.reached = events[len(events)-1].Number
	if len(out.GetEvents()) == 0 {
		return nil // reported when the watch is idle
	}
	out.Reached = w.reached
	return w.grpc.Send(out)
}

// wait waits for more events, and reports from time to time how far the watch has come.
func (w *watch) wait(more <-chan struct{}) error {
	idle := time.NewTimer(watchIdle)
	defer idle.Stop()
	select {
	case <-more:
		return nil
	case <-idle.C:
		return w.grpc.Send(&pb.WatchResponse{Reached: w.reached})
	case <-w.svc.stopping:
		return protocol.Err(goingDown())
	case <-w.grpc.Context().Done():
		return status.FromContextError(w.grpc.Context().Err()).Err()
	}
}
