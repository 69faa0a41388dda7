package service

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that ours wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// A tolerantCodec decodes a malformed message to an empty one with a mark, for [malformed] to find.
//
// If a message does not decode, gRPC itself ends the call with INTERNAL, as if we were at fault,
// and does so before the handler or an interceptor could give a better answer. Text that is not
// UTF-8 makes such a message, and is a mistake that a client may well make.
type tolerantCodec struct{ encoding.CodecV2 }

func newCodec() tolerantCodec { return tolerantCodec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes a message.
func (c tolerantCodec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	m, ok := v.(proto.Message)
	if err == nil || !ok || m.ProtoReflect().Descriptor().ParentFile().Package() != pb.File_lockstep_v1_lockstep_proto.Package() {
		return err
	}
	proto.Reset(m)
	m.ProtoReflect().SetUnknown(mark)
	return nil
}

// mark is an unknown field with the highest possible number. If a client sends it itself, its
// message is reported as malformed.
var mark = protowire.AppendVarint(protowire.AppendTag(nil, protowire.MaxValidNumber, protowire.VarintType), 1)

// malformed returns the error for a message that did not decode; nil for any other.
func malformed(m proto.Message) *pb.Error {
	if string(m.ProtoReflect().GetUnknown()) != string(mark) {
		return nil
	}
	return &pb.Error{
		Reason:  pb.Reason_REASON_INVALID_ARGUMENT,
		Field:   "message",
		Message: "message: is not a valid lockstep.v1 message; all text must be UTF-8",
	}
}

// checked returns the description of a service whose unary methods refuse messages that are
// malformed or too big.
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
				return err
			}
			if e := malformed(m.(proto.Message)); e != nil {
				return protocol.Err(e)
			}
			if e := protocol.CheckSize(m.(proto.Message)); e != nil {
				return protocol.Err(e)
			}
			return nil
		}, ic)
	}
}

// isDisconnect distinguishes the end of a connection, which is normal, from a client's mistake.
func isDisconnect(err error) bool {
	code := status.Code(err)
	return errors.Is(err, context.Canceled) || code == codes.Canceled || code == codes.Unavailable || code == codes.DeadlineExceeded
}
