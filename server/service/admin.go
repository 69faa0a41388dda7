package service

import (
	"context"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// Status returns what this node knows, whether it leads or not.
func (s *Service) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return toStatus(s.cfg.Node.Status(), s.cfg.Version), nil
}

func toStatus(st node.Status, version string) *pb.StatusResponse {
	out := &pb.StatusResponse{
		ClusterId:      st.ClusterID,
		Node:           st.Name,
		Leader:         st.LeaderName,
		LeaderAddress:  st.LeaderClientAddress,
		Term:           st.Term,
		AppliedIndex:   st.Applied,
		CommittedIndex: st.Commit,
		Sessions:       uint64(st.Counts.Sessions),
		Locks:          uint64(st.Counts.Names),
		Waiters:        uint64(st.Counts.Waiters),
		Version:        version,
		NextToken:      uint64(st.Counts.NextToken),
		FeatureLevel:   st.Level,
		GrantsHeld:     st.Replica.GrantsHeld,
		GrantsHeldMs:   uint64(st.Replica.GrantsHeldFor.Milliseconds()),
	}
	out.Members = toMembers(st)
	return out
}

func toMembers(st node.Status) (all []*pb.Member) {
	for _, m := range st.Members {
		all = append(all, toMember(st, m))
	}
	return all
}

func toMember(st node.Status, m node.MemberStatus) *pb.Member {
	out := &pb.Member{
		Name:          m.Name,
		Id:            m.ID,
		PeerAddress:   m.PeerAddress,
		ClientAddress: m.ClientAddress,
		Role:          "follower",
		Health:        "ok",
		AppliedIndex:  m.Applied,
		FeatureLevel:  m.Level,
		Zone:          m.Zone,
	}
	if m.Learner {
		out.Role = "learner"
	}
	switch {
	case m.Leader:
		out.Role = node.Leader.String()
	case m.Self && st.Role == node.Candidate:
		out.Role = node.Candidate.String()
	}
	switch {
	case m.Self && st.Waiting != "":
		out.Health = st.Waiting
	case m.Self && st.Role == node.Starting:
		out.Health = "starting"
	case m.Self && !Ready(st):
		out.Health = "no-quorum"
	case !m.Reachable:
		out.Health = "unreachable"
	case m.Stuck >= replica.StuckAfter:
		out.Health = "behind"
	}
	return out
}

// Revoke ends grants or a session at an operator's request. A caller that gives no name is recorded
// by address.
func (s *Service) Revoke(ctx context.Context, r *pb.RevokeRequest) (*pb.RevokeResponse, error) {
	by := r.GetBy()
	if by == "" {
		by = remote(ctx)
	}
	req, e := protocol.FromRevoke(r, by)
	a, err := ask[lead.RevokedClaims](ctx, s, req, e)
	if err != nil {
		return nil, err
	}
	s.log.Info("revoked", "target", r.GetTarget(), "by", by, "reason", r.GetReason(), "now", r.GetNow(), "claims", a.Count)
	return &pb.RevokeResponse{Revoked: a.Count}, nil
}
