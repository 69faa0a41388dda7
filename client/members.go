package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// AddMember adds a learner, a member without a vote, for a node that is then started with "server
// --join". The response gives its flags. Repeated with the same name and address, it returns the
// same response until the node has started.
func (a *Admin) AddMember(ctx context.Context, name, peerAddress string) (*pb.MemberAddResponse, error) {
	var why busyReason
	r, err := change(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.MemberAddResponse, error) {
		r, err := pb.NewAdminServiceClient(conn).MemberAdd(ctx, &pb.MemberAddRequest{Name: name, PeerAddress: peerAddress})
		return r, why.note(err)
	})
	return r, memberError("add", name, why.tell(err))
}

// PromoteMember gives a learner its vote. It is refused with [lockstep.ErrBusy] until the learner
// has caught up.
func (a *Admin) PromoteMember(ctx context.Context, name string) (*pb.Member, error) {
	var why busyReason
	r, err := change(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.MemberPromoteResponse, error) {
		r, err := pb.NewAdminServiceClient(conn).MemberPromote(ctx, &pb.MemberPromoteRequest{Name: name})
		return r, why.note(err)
	})
	return r.GetMember(), memberError("promote", name, why.tell(err))
}

// RemoveMember removes a member; the node then shuts down by itself. A leader hands over leadership
// first. The removal is refused if the remaining healthy voters would not be a majority, unless
// force is set.
func (a *Admin) RemoveMember(ctx context.Context, name string, force bool) error {
	var why busyReason
	_, err := change(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.MemberRemoveResponse, error) {
		r, err := pb.NewAdminServiceClient(conn).MemberRemove(ctx, &pb.MemberRemoveRequest{Name: name, Force: force})
		return r, why.note(err)
	})
	return memberError("remove", name, why.tell(err))
}

// HandOver transfers leadership to a member, or with an empty name to the most up-to-date voter,
// and returns the new leader.
func (a *Admin) HandOver(ctx context.Context, to string) (leader string, err error) {
	var why busyReason
	r, err := change(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.HandOverResponse, error) {
		r, err := pb.NewAdminServiceClient(conn).HandOver(ctx, &pb.HandOverRequest{To: to})
		return r, why.note(err)
	})
	if err != nil {
		return "", fmt.Errorf("hand over leadership: %w", why.tell(err))
	}
	return r.GetLeader(), nil
}

// Upgrade raises the cluster's feature level to the given level, or with 0 to the newest that any
// member supports. There is no way back. It is refused, naming the members at fault, unless all
// members are up and support the level. With check it only reports what would happen.
func (a *Admin) Upgrade(ctx context.Context, to uint32, check bool) (*pb.UpgradeResponse, error) {
	var why busyReason
	old := false
	r, err := change(ctx, a, func(ctx context.Context, conn *grpc.ClientConn) (*pb.UpgradeResponse, error) {
		r, err := pb.NewAdminServiceClient(conn).Upgrade(ctx, &pb.UpgradeRequest{ToLevel: to, Check: check})
		old = status.Code(err) == codes.Unimplemented
		return r, why.note(err)
	})
	if old {
		err = &notNow{"this node runs a version that cannot raise the feature level: upgrade all nodes first, one by one"}
	}
	if err != nil {
		return nil, fmt.Errorf("raise the feature level: %w", why.tell(err))
	}
	return r, nil
}

// A busyReason is the text of a BUSY response that is not about a lock.
type busyReason string

func (w *busyReason) note(err error) error {
	if e := wireError(err); e.GetReason() == pb.Reason_REASON_BUSY {
		*w = busyReason(e.GetMessage())
	}
	return err
}

func (w *busyReason) tell(err error) error {
	if *w != "" && errors.Is(err, lockstep.ErrBusy) {
		return &notNow{string(*w)}
	}
	return err
}

// A notNow is ErrBusy with the text of the service.
type notNow struct{ why string }

func (e *notNow) Error() string        { return e.why }
func (e *notNow) Is(target error) bool { return target == lockstep.ErrBusy }

func memberError(op, name string, err error) error {
	if err != nil {
		return fmt.Errorf("%s member %s: %w", op, lockstep.Excerpt(name), err)
	}
	return nil
}
