package service

import (
	"context"
	"fmt"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// OpenSession opens a session that no stream is bound to.
func (s *Service) OpenSession(ctx context.Context, r *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
	req, e := protocol.FromOpenSession(r, s.cfg.Rand)
	a, err := ask[lead.Opened](ctx, s, req, e)
	if err != nil {
		return nil, err
	}
	return protocol.ToOpenSession(a), nil
}

// KeepAlive renews the lease of a session.
func (s *Service) KeepAlive(ctx context.Context, r *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	req, e := protocol.FromKeepAlive(r)
	a, err := ask[lead.Kept](ctx, s, req, e)
	if err != nil {
		return nil, err
	}
	return protocol.ToKeepAlive(a), nil
}

// CloseSession ends a session with all its claims.
func (s *Service) CloseSession(ctx context.Context, r *pb.CloseSessionRequest) (*pb.CloseSessionResponse, error) {
	req, e := protocol.FromCloseSession(r)
	if _, err := ask[lead.Closed](ctx, s, req, e); err != nil {
		return nil, err
	}
	return &pb.CloseSessionResponse{}, nil
}

// Acquire waits until its claim is granted or over, or the call ends.
func (s *Service) Acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	req, e := protocol.FromAcquire(r)
	c, err := s.start(ctx, req, e)
	if err != nil {
		return nil, err
	}
	resp, seq, err := c.untilGranted(ctx)
	if err != nil && ctx.Err() != nil && r.GetSeq() == 0 && r.GetNonce() == "" {
		s.abandon(c, req, seq)
	} else {
		c.close()
	}
	return resp, err
}

// untilGranted waits until the claim is granted or over. seq is zero if its number is not known
// yet.
func (c *call) untilGranted(ctx context.Context) (resp *pb.AcquireResponse, seq uint64, err error) {
	for {
		claim, err := c.nextClaim(ctx)
		if err != nil {
			return nil, seq, err
		}
		resp, e := protocol.ToAcquire(claim)
		if e != nil {
			return nil, claim.Seq, protocol.Err(e)
		}
		if resp != nil {
			return resp, claim.Seq, nil
		}
		seq = claim.Seq
	}
}

// nextClaim waits for the next state of the claim that the call follows.
func (c *call) nextClaim(ctx context.Context) (command.ClaimStatus, error) {
	answer, err := c.next(ctx)
	if err != nil {
		return command.ClaimStatus{}, err
	}
	switch a := answer.(type) {
	case lead.Claimed:
		return a.Claim, nil
	case lead.Changed:
		return a.Claim, nil
	case lead.Ended:
		return command.ClaimStatus{}, protocol.Err(protocol.FromEnded(a))
	default:
		panic(fmt.Sprintf("service: an Acquire was answered %T", answer))
	}
}

// abandonTimeout bounds the wait for the number of an abandoned claim.
const abandonTimeout = 5 * time.Second

// abandon cancels a claim, queued or granted, whose caller has gone and cannot ask for it again: it
// knows neither a number nor a nonce. A seq of zero means that the claim was not numbered yet. If
// the claim cannot be cancelled, because this node stops or no longer leads, it ends with its
// session.
func (s *Service) abandon(c *call, acquire lead.Request, seq uint64) {
	s.readers.Go(func() {
		defer c.close()
		ctx, cancel := context.WithTimeout(context.Background(), abandonTimeout)
		defer cancel()
		if seq == 0 {
			claim, err := c.nextClaim(ctx)
			if err != nil || claim.State.Final() {
				return
			}
			seq = claim.Seq
		}
		acquire.Body = lead.Cancel{Claim: command.Cancel{Session: acquire.Session, Seq: seq}}
		_ = c.submit(acquire)
	})
}

// Release ends a grant.
func (s *Service) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.ReleaseResponse, error) {
	req, e := protocol.FromRelease(r)
	a, err := ask[lead.Claimed](ctx, s, req, e)
	if err != nil {
		return nil, err
	}
	return &pb.ReleaseResponse{Claim: protocol.ToClaim(a.Claim)}, nil
}

// Cancel ends a claim, queued or granted.
func (s *Service) Cancel(ctx context.Context, r *pb.CancelRequest) (*pb.CancelResponse, error) {
	req, e := protocol.FromCancel(r)
	a, err := ask[lead.Claimed](ctx, s, req, e)
	if err != nil {
		return nil, err
	}
	return &pb.CancelResponse{Claim: protocol.ToClaim(a.Claim)}, nil
}

// GetLock reads one lock.
func (s *Service) GetLock(ctx context.Context, r *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	req, e := protocol.FromGetLock(r)
	a, err := ask[lead.LockRead](ctx, s, req, e)
	if err != nil {
		return nil, err
	}
	return protocol.ToGetLock(a), nil
}

// ListLocks reads one page of the locks in use.
func (s *Service) ListLocks(ctx context.Context, r *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	req, e := protocol.FromListLocks(r)
	a, err := ask[lead.LocksRead](ctx, s, req, e)
	if err != nil {
		return nil, err
	}
	return protocol.ToListLocks(a), nil
}

// ListSessions reads one page of the live sessions.
func (s *Service) ListSessions(ctx context.Context, r *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	req, e := protocol.FromListSessions(r)
	a, err := ask[lead.SessionsRead](ctx, s, req, e)
	if err != nil {
		return nil, err
	}
	return protocol.ToListSessions(a), nil
}

// History reads the events of one lock.
func (s *Service) History(ctx context.Context, r *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	req, e := protocol.FromHistory(r)
	a, err := ask[lead.HistoryRead](ctx, s, req, e)
	if err != nil {
		return nil, err
	}
	return protocol.ToHistory(a), nil
}
