package service

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// handOverPatience is how long a handover requested by an operator may take. It normally takes some
// milliseconds.
const handOverPatience = 5 * time.Second

// maxPeerAddress is the longest peer address in bytes: a DNS name, brackets and a port.
const maxPeerAddress = 262

var memberName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func invalidField(field, message string) error {
	return protocol.Err(&pb.Error{Reason: pb.Reason_REASON_INVALID_ARGUMENT, Field: field, Message: field + ": " + message})
}

// MemberAdd adds a node, which is then started with --join, as a learner.
func (s *Service) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	if !memberName.MatchString(r.GetName()) {
		return nil, invalidField("name", `must be 1 to 63 letters, digits, ".", "_" and "-", starting with a letter or digit`)
	}
	host, port, err := net.SplitHostPort(r.GetPeerAddress())
	number, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || errPort != nil || number == 0 || len(r.GetPeerAddress()) > maxPeerAddress {
		return nil, invalidField("peer_address", "must be the host:port at which the other nodes reach the new one, at most 262 bytes")
	}
	m, err := s.changeMembers(ctx, lead.AddLearner, command.Member{ID: newMemberID(), Name: r.GetName(), Address: r.GetPeerAddress()}, false)
	if err != nil {
		return nil, err
	}
	st := s.cfg.Node.Status()
	peers := []string{m.Name + "=" + m.Address}
	for _, other := range st.Members {
		// The status may be a moment old, and have a member that m replaces.
		if other.Name != m.Name {
			peers = append(peers, other.Name+"="+other.PeerAddress)
		}
	}
	s.log.Info("member added", "name", m.Name, "peer", m.Address, "by", remote(ctx))
	return &pb.MemberAddResponse{
		Member:         &pb.Member{Name: m.Name, Id: m.ID, PeerAddress: m.Address, Role: "learner", Health: "unreachable"},
		InitialCluster: strings.Join(peers, ","),
		ClusterId:      st.ClusterID,
	}, nil
}

// newMemberID draws an id. With 64 bits no id is drawn twice, and the member table would refuse it.
func newMemberID() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails, see its documentation
	return max(1, binary.BigEndian.Uint64(b[:]))
}

// MemberPromote gives a learner its vote.
func (s *Service) MemberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	m, err := s.changeMembers(ctx, lead.PromoteLearner, command.Member{Name: r.GetName()}, false)
	if err != nil {
		return nil, err
	}
	s.log.Info("member promoted", "name", m.Name, "by", remote(ctx))
	return &pb.MemberPromoteResponse{Member: &pb.Member{Name: m.Name, Id: m.ID, PeerAddress: m.Address, Role: "follower", Health: "ok"}}, nil
}

// MemberRemove ends a membership. A leader that is to be removed hands leadership over first, and
// the request goes to its successor.
func (s *Service) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	st := s.cfg.Node.Status()
	if st.Role == node.Leader && r.GetName() == st.Name && len(st.Replica.Voters) > 1 {
		if err := s.stepDown(ctx, 0); err != nil {
			return nil, err
		}
		return nil, s.notLeader(ctx)
	}
	m, err := s.changeMembers(ctx, lead.RemoveMember, command.Member{Name: r.GetName()}, r.GetForce())
	if err != nil {
		return nil, err
	}
	s.log.Info("member removed", "name", m.Name, "force", r.GetForce(), "by", remote(ctx))
	return &pb.MemberRemoveResponse{}, nil
}

// HandOver transfers leadership to a voter.
func (s *Service) HandOver(ctx context.Context, r *pb.HandOverRequest) (*pb.HandOverResponse, error) {
	st := s.cfg.Node.Status()
	if st.Role != node.Leader {
		return nil, s.notLeader(ctx)
	}
	if r.GetTo() == st.Name {
		return &pb.HandOverResponse{Leader: st.Name}, nil
	}
	var to uint64
	for _, m := range st.Members {
		if r.GetTo() != "" && m.Name == r.GetTo() && !m.Learner {
			to = m.ID
		}
	}
	if r.GetTo() != "" && to == 0 {
		return nil, invalidField("to", "no voter with this name: see the member list")
	}
	if len(st.Replica.Voters) < 2 {
		return nil, invalidField("to", "there is no other voter")
	}
	if err := s.stepDown(ctx, to); err != nil {
		return nil, err
	}
	leader := s.settle(ctx).LeaderName
	s.log.Info("leadership handed over", "to", leader, "by", remote(ctx))
	return &pb.HandOverResponse{Leader: leader}, nil
}

func (s *Service) stepDown(ctx context.Context, to uint64) error {
	ctx, cancel := context.WithTimeout(ctx, handOverPatience)
	defer cancel()
	if err := s.cfg.Node.HandOverTo(ctx, to); err != nil {
		return protocol.Err(&pb.Error{Reason: pb.Reason_REASON_BUSY,
			Message: "leadership was not handed over: no other voter accepted it; check the health of the members"})
	}
	return nil
}

func (s *Service) changeMembers(ctx context.Context, change lead.MemberChange, m command.Member, force bool) (command.Member, error) {
	req := lead.Request{Body: lead.ChangeMembers{Change: change, Member: m, Force: force}}
	a, err := ask[lead.MembersChanged](ctx, s, req, nil)
	return a.Member, err
}

// Upgrade raises the cluster's feature level.
func (s *Service) Upgrade(ctx context.Context, r *pb.UpgradeRequest) (*pb.UpgradeResponse, error) {
	a, err := ask[lead.LevelRaised](ctx, s, lead.Request{Body: lead.RaiseLevel{To: r.GetToLevel(), Check: r.GetCheck()}}, nil)
	if err != nil {
		return nil, err
	}
	if a.From != a.To && !r.GetCheck() {
		s.log.Info("feature level raised", "from", a.From, "to", a.To, "by", remote(ctx))
	}
	return &pb.UpgradeResponse{FromLevel: a.From, ToLevel: a.To, Members: toMembers(s.cfg.Node.Status())}, nil
}
