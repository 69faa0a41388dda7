package service

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// checked is the description of a service whose unary methods refuse messages that are
// malformed or too big in our own words. gRPC calls the former INTERNAL, as if we were at fault;
// text that is not UTF-8 is one of them. Interceptors come too late: a message that does not decode never reaches them.
func checked(desc grpc.ServiceDesc) *grpc.ServiceDesc {
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		desc.Methods[i].Handler = checkedMethod(desc.Methods[i].Handler)
	}
	return &desc
}

func checkedMethod(next grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, ic grpc.UnaryServerInterceptor) (any, error) {
		return next(srv, ctx, func(m any) error {
			if err := decode(m); err != nil {
				return decodeError(err)
			}
			if e := protocol.CheckSize(m.(proto.Message)); e != nil {
				return protocol.Err(e)
			}
			return nil
		}, ic)
	}
}

// decodeError explains why a message could not be read; errors of the connection stay as they are.
func decodeError(err error) error {
	switch status.Code(err) {
	case codes.Internal:
		return protocol.Err(&pb.Error{
			Reason:  pb.Reason_REASON_INVALID_ARGUMENT,
			Field:   "message",
			Message: "message: is not a valid message of lockstep.v1; all text must be UTF-8",
		})
	case codes.ResourceExhausted:
		return protocol.Err(protocol.TooBig())
	}
	return err
}

// isDisconnect tells the end of a connection, which is no news, from what a client does wrong.
func isDisconnect(err error) bool {
	code := status.Code(err)
	return errors.Is(err, context.Canceled) || code == codes.Canceled || code == codes.Unavailable || code == codes.DeadlineExceeded
}
