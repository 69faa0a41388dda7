package service

import (
	"context"
	"time"

	"google.golang.org/grpc"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

const (
	// leaderless is how long a call that waits for a lock keeps looking for the next leader:
	// several elections.
	leaderless = 10 * time.Second
	// lookEvery is the pause between two attempts.
	lookEvery = 100 * time.Millisecond
)

// outlivesLeader reports whether an Acquire continues when the leader changes: it waits, and has a
// number or a nonce by which the next leader recognizes it. A call that a node has forwarded
// continues at that node.
func outlivesLeader(ctx context.Context, req any) bool {
	r, ok := req.(*pb.AcquireRequest)
	if !ok || passedOn(ctx) {
		return false
	}
	wait := r.GetSpec().WaitMs
	return (r.GetSeq() != 0 || r.GetNonce() != "") && (wait == nil || *wait > 0)
}

// acquire keeps an Acquire going until it is answered, or until no leader has been found for
// leaderless. Each leader finds the claim of the same number or nonce where it was in its queue,
// and starts its wait over.
func (s *Service) acquire(ctx context.Context, req any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	for lost := time.Now(); ; {
		began := time.Now()
		resp, err := s.routeOnce(ctx, req, info, serve)
		if !s.lostLeader(ctx, err) {
			return resp, err
		}
		if time.Since(began) > time.Second { // it was in a queue
			lost = time.Now()
		}
		if time.Since(lost) > leaderless || !sleep(ctx, lookEvery) {
			return resp, err
		}
	}
}

// lostLeader reports whether a call ended because there is, or will be, another leader.
func (s *Service) lostLeader(ctx context.Context, err error) bool {
	select {
	case <-s.stopping:
		return false
	default:
		return ctx.Err() == nil && protocol.FromErr(err).GetReason() == pb.Reason_REASON_NOT_LEADER
	}
}
