package service

import (
	"context"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// notLeader returns the error that redirects a client to the leader. The address is missing while
// there is no leader, or while this node still believes that it is the leader itself.
func (s *Service) notLeader(ctx context.Context) error { return protocol.Err(notLeader(s.settle(ctx))) }

func notLeader(st node.Status) *pb.Error {
	e := protocol.FromRefused(lead.Refused{Reason: lead.NotLeader})
	if st.Leader == 0 || st.Leader == st.ID {
		e.Message += ", and knows of none"
		return e
	}
	e.Message += ": " + st.LeaderName + " is"
	e.LeaderAddress = st.LeaderClientAddress
	return e
}

// refuse returns the error of a unary call that does not reach the node.
func (s *Service) refuse(e *pb.Error) error {
	s.cfg.Refused(e.GetReason())
	return protocol.Err(e)
}

func overloaded() *pb.Error {
	return protocol.FromRefused(lead.Refused{Reason: lead.Overloaded})
}

func goingDown() *pb.Error {
	return &pb.Error{Reason: pb.Reason_REASON_UNAVAILABLE, Message: "this node is shutting down: try another one"}
}

// farewell returns the error for streams and calls that end because the service stops. It redirects
// clients to the leader if possible.
func (s *Service) farewell() error {
	if st := s.cfg.Node.Status(); st.Role != node.Leader && settled(st) {
		return protocol.Err(notLeader(st))
	}
	return protocol.Err(goingDown())
}

// farewellUnder is the same for a call that the replica has, and that may still take effect.
func (s *Service) farewellUnder() error {
	e := protocol.FromErr(s.farewell())
	e.Uncertain = true
	return protocol.Err(e)
}

// tooSlow returns the error that ends the stream of a client that does not read.
func tooSlow() error {
	return protocol.Err(&pb.Error{Reason: pb.Reason_REASON_OVERLOADED, Message: "the client does not read what it receives"})
}
