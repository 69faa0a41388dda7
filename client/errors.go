package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/lockstep-dev/lockstep"
	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
)

// sentinelOf maps the reasons of the service to the errors of the contract. BUSY and the reasons
// that are losses have types of their own.
var sentinelOf = map[pb.Reason]error{
	pb.Reason_REASON_NOT_LEADER:       lockstep.ErrUnavailable,
	pb.Reason_REASON_UNAVAILABLE:      lockstep.ErrUnavailable,
	pb.Reason_REASON_OVERLOADED:       lockstep.ErrUnavailable,
	pb.Reason_REASON_WRONG_CLUSTER:    lockstep.ErrUnavailable,
	pb.Reason_REASON_QUOTA_EXCEEDED:   lockstep.ErrQuota,
	pb.Reason_REASON_MODE_MISMATCH:    lockstep.ErrMode,
	pb.Reason_REASON_INVALID_NAME:     lockstep.ErrInvalid,
	pb.Reason_REASON_RESERVED_NAME:    lockstep.ErrInvalid,
	pb.Reason_REASON_INVALID_METADATA: lockstep.ErrInvalid,
	pb.Reason_REASON_INVALID_ARGUMENT: lockstep.ErrInvalid,
	pb.Reason_REASON_OUT_OF_RANGE:     lockstep.ErrInvalid,
	pb.Reason_REASON_REQUEST_REUSED:   lockstep.ErrInvalid,
	pb.Reason_REASON_UNSUPPORTED:      lockstep.ErrUnsupported,
}

// fromWire makes an error of the contract from one of the service, with its message.
func fromWire(e *pb.Error) error {
	switch e.GetReason() {
	case pb.Reason_REASON_BUSY:
		return &lockstep.BusyError{Holders: claimsOf(e.GetHolders()), Position: int(e.GetPosition())}
	case pb.Reason_REASON_SESSION_EXPIRED:
		return &lockstep.LossError{Reason: lockstep.SessionExpired, Detail: e.GetMessage()}
	case pb.Reason_REASON_REVOKED:
		return &lockstep.LossError{Reason: lockstep.Revoked, Detail: e.GetMessage()}
	case pb.Reason_REASON_SESSION_UNKNOWN, pb.Reason_REASON_LOST, pb.Reason_REASON_NOT_HELD, pb.Reason_REASON_STALE_REQUEST:
		return &lockstep.LossError{Reason: lockstep.RecordMissing, Detail: e.GetMessage()}
	}
	text := e.GetMessage()
	if text == "" {
		text = e.GetReason().String()
	}
	if s, ok := sentinelOf[e.GetReason()]; ok {
		return fmt.Errorf("%w: %s", s, text)
	}
	return errors.New("lockstep: error from the service: " + text)
}

// wireError is the service's own error in the one that gRPC returned; nil if there is
// none.
func wireError(err error) *pb.Error {
	s, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, d := range s.Details() {
		if e, ok := d.(*pb.Error); ok {
			return e
		}
	}
	return nil
}

// fromCall makes an error of the contract from the error of a call.
func fromCall(err error) error {
	if e := wireError(err); e != nil {
		return fromWire(e)
	}
	if e, ok := errors.AsType[*ClusterError](err); ok {
		return e
	}
	return fmt.Errorf("%w: %s", lockstep.ErrUnavailable, plain(status.Convert(err).Message()))
}

// An unsent is the error of a call that had no connection: the service certainly never received it.
type unsent struct{ error }

func (e unsent) Unwrap() error { return e.error }

// markUnsent is installed on every connection, and distinguishes calls that were never sent from
// those whose response was lost.
func markUnsent(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var reached peer.Peer // stays empty without a connection
	err := invoke(ctx, method, req, reply, cc, append(slices.Clone(opts), grpc.Peer(&reached))...)
	if err != nil && reached.Addr == nil && wireError(err) == nil {
		return unsent{err}
	}
	return err
}

// mayTakeEffect reports whether a call that ended with err may have taken effect or may still do
// so.
func mayTakeEffect(err error) bool {
	if e := wireError(err); e != nil {
		return e.GetUncertain()
	}
	if _, never := errors.AsType[unsent](err); never {
		return false
	}
	_, refused := errors.AsType[*ClusterError](err)
	return err != nil && !refused
}

// uncertainty adds to the last error of a call that earlier attempts may have taken effect.
func uncertainty(err error) error {
	if errors.Is(err, lockstep.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &uncertain{err}
	}
	return fmt.Errorf("%w; an earlier attempt, whose response was lost, may have taken effect: check before you retry", err)
}

// An uncertain is ErrUncertain with the error of the last attempt, but it no longer matches
// ErrUnavailable, which would mean that the call is safe to repeat.
type uncertain struct{ last error }

func (e *uncertain) Error() string {
	return fmt.Sprintf("%v: the request may have taken effect: check before you retry: %v", lockstep.ErrUncertain, e.last)
}

func (e *uncertain) Is(target error) bool {
	return target == lockstep.ErrUncertain || target != lockstep.ErrUnavailable && errors.Is(e.last, target)
}

// plain rewrites a gRPC message for users.
func plain(text string) string {
	switch {
	case isHTTP(text):
		return "this is an HTTP server: clients use the gRPC port of a node, 7400 by default"
	case strings.Contains(text, "error reading server preface"):
		return "this is not the client port of a node: clients use 7400 by default"
	}
	if _, desc, ok := strings.Cut(text, " desc = "); ok && strings.HasPrefix(text, "rpc error: code = ") {
		text = desc
	}
	if _, desc, ok := strings.Cut(text, `connection error: desc = "`); ok {
		text, _, _ = strings.Cut(desc, `"`)
		text = strings.TrimPrefix(strings.TrimPrefix(text, "transport: "), "Error while dialing: ")
	}
	return text
}

// withoutCode is err without the text that gRPC wraps around its message. The error of a node of
// another cluster becomes plain text here: as long as it is not certain that the endpoints belong
// to two clusters, the service is unavailable.
func withoutCode(err error) error {
	if e, ok := errors.AsType[*ClusterError](err); ok {
		return errors.New(e.Error())
	}
	if s, ok := status.FromError(err); ok {
		return errors.New(plain(s.Message()))
	}
	return err
}

// ended is the error of a call whose context is done: errors.Is finds ctx.Err(), and the
// cause if there is another.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func claimsOf(holders []*pb.Holder) []lockstep.Claim {
	claims := make([]lockstep.Claim, 0, len(holders))
	for _, h := range holders {
		claims = append(claims, lockstep.Claim{
			Owner:    h.GetSession(),
			Token:    lockstep.Token(h.GetToken()),
			Mode:     lockstep.Mode(h.GetMode()),
			Since:    time.UnixMilli(int64(h.GetSinceUnixMs())),
			Metadata: h.GetMetadata(),
		})
	}
	return claims
}
