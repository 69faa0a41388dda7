package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// AddMember makes a learner, which has no vote, of a node that is started with "server --join" next. The answer
// says with which flags. Repeated with the same name and address, it gives the same answer until the node has started.
func (a *Admin) AddMember(ctx context.Context, name, peerAddress string) (*pb.MemberAddResponse, error) {
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.MemberAddResponse, error) {
		return pb.NewAdminServiceClient(conn).MemberAdd(ctx, &pb.MemberAddRequest{Name: name, PeerAddress: peerAddress})
	})
	return r, memberError("add", name, err)
}

// PromoteMember gives a learner its vote. It is refused with [lockstep.ErrBusy] until the learner has caught up.
func (a *Admin) PromoteMember(ctx context.Context, name string) (*pb.Member, error) {
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.MemberPromoteResponse, error) {
		return pb.NewAdminServiceClient(conn).MemberPromote(ctx, &pb.MemberPromoteRequest{Name: name})
	})
	return r.GetMember(), memberError("promote", name, err)
}

// RemoveMember ends a membership; the node ends by itself. A leader hands leadership over first. It is refused when
// the healthy voters that are left would be no majority, unless force is set.
func (a *Admin) RemoveMember(ctx context.Context, name string, force bool) error {
	_, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.MemberRemoveResponse, error) {
		return pb.NewAdminServiceClient(conn).MemberRemove(ctx, &pb.MemberRemoveRequest{Name: name, Force: force})
	})
	return memberError("remove", name, err)
}

// HandOver gives the leadership to a member, or with an empty name to the voter that is furthest, and returns who leads.
func (a *Admin) HandOver(ctx context.Context, to string) (leader string, err error) {
	r, err := call(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.HandOverResponse, error) {
		return pb.NewAdminServiceClient(conn).HandOver(ctx, &pb.HandOverRequest{To: to})
	})
	if err != nil {
		return "", fmt.Errorf("hand over leadership: %w", err)
	}
	return r.GetLeader(), nil
}

func memberError(op, name string, err error) error {
	if err != nil {
		return fmt.Errorf("%s member %s: %w", op, lockstep.Excerpt(name), err)
	}
	return nil
}
