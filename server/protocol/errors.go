package protocol

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// Domain is the domain of every google.rpc.ErrorInfo of the service.
const Domain = "lockstep.dev"

// RetryDelay is how long an OVERLOADED error asks a client to wait before it tries again.
const RetryDelay = time.Second

// codeOf is the only table from the reason of an error to its gRPC code.
var codeOf = [...]codes.Code{
	pb.Reason_REASON_UNSPECIFIED:      codes.Unknown,
	pb.Reason_REASON_BUSY:             codes.Aborted, // 409 over HTTP
	pb.Reason_REASON_NOT_HELD:         codes.FailedPrecondition,
	pb.Reason_REASON_NOT_QUEUED:       codes.FailedPrecondition,
	pb.Reason_REASON_LOST:             codes.FailedPrecondition,
	pb.Reason_REASON_SESSION_EXPIRED:  codes.FailedPrecondition,
	pb.Reason_REASON_SESSION_UNKNOWN:  codes.NotFound,
	pb.Reason_REASON_REVOKED:          codes.FailedPrecondition,
	pb.Reason_REASON_NOT_LEADER:       codes.Unavailable,
	pb.Reason_REASON_STALE_REQUEST:    codes.FailedPrecondition,
	pb.Reason_REASON_REQUEST_REUSED:   codes.InvalidArgument,
	pb.Reason_REASON_MODE_MISMATCH:    codes.FailedPrecondition,
	pb.Reason_REASON_INVALID_NAME:     codes.InvalidArgument,
	pb.Reason_REASON_RESERVED_NAME:    codes.PermissionDenied,
	pb.Reason_REASON_INVALID_METADATA: codes.InvalidArgument,
	pb.Reason_REASON_INVALID_ARGUMENT: codes.InvalidArgument,
	pb.Reason_REASON_OUT_OF_RANGE:     codes.OutOfRange,
	pb.Reason_REASON_UNSUPPORTED:      codes.Unimplemented,
	pb.Reason_REASON_QUOTA_EXCEEDED:   codes.ResourceExhausted,
	pb.Reason_REASON_OVERLOADED:       codes.ResourceExhausted,
	pb.Reason_REASON_UNAVAILABLE:      codes.Unavailable,
	pb.Reason_REASON_DATA_LOSS:        codes.DataLoss,
	pb.Reason_REASON_WRONG_CLUSTER:    codes.FailedPrecondition,
}

// A refusal is the explanation of a refused request for its client.
type refusal struct {
	reason  pb.Reason
	field   string
	message string
}

// refusedByMachine has a row for each code of the machine except OK.
var refusedByMachine = [...]refusal{
	command.SessionUnknown: {pb.Reason_REASON_SESSION_UNKNOWN, "session", "no such session, or wrong secret"},
	command.SessionExpired: {pb.Reason_REASON_SESSION_EXPIRED, "session", "the lease of the session expired: open a new session"},
	command.SessionRevoked: {pb.Reason_REASON_REVOKED, "session", "an operator ended the session"},
	command.StaleRequest:   {pb.Reason_REASON_STALE_REQUEST, "seq", "the number, or the floor of this call, is below the floor of the session: the claim has ended"},
	command.RequestReused:  {pb.Reason_REASON_REQUEST_REUSED, "seq", "the number was already used for a different claim"},
	command.ModeMismatch:   {pb.Reason_REASON_MODE_MISMATCH, "spec.mode", "the name is in use as another kind of lock, or with another capacity"},
	command.NotHeld:        {pb.Reason_REASON_NOT_HELD, "token", "the claim has no grant with this token; use cancel for a waiting claim"},
	command.NotQueued:      {pb.Reason_REASON_NOT_QUEUED, "seq", "the claim is not in a queue"},
	command.Lost:           {pb.Reason_REASON_LOST, "token", "the grant has ended: another session may hold the lock"},
	command.QuotaExceeded:  {pb.Reason_REASON_QUOTA_EXCEEDED, "", "a limit was reached"},
	command.NotReady:       {pb.Reason_REASON_UNAVAILABLE, "", "the cluster is not ready to grant locks yet"},
	command.OutOfRange:     {pb.Reason_REASON_OUT_OF_RANGE, "seq", "the number is too far above the floor, or a value is out of range"},
	command.Malformed:      {pb.Reason_REASON_INVALID_ARGUMENT, "seq", "a client-numbered session requires seq and takes no nonce; other sessions take no seq, and optionally a nonce"},
	command.Void:           {pb.Reason_REASON_UNAVAILABLE, "", "the leader that proposed this has stepped down"}, // only a leader's own proposals can be void
	command.Exhausted:      {pb.Reason_REASON_QUOTA_EXCEEDED, "", "all 2^53 fencing tokens of this cluster have been issued: it can never grant a lock again, build a new cluster"},
}

// refusedByLead has a row for each refusal of the leader except RefusedByMachine.
var refusedByLead = [...]refusal{
	lead.NotLeader:      {pb.Reason_REASON_NOT_LEADER, "", "this node is not the leader"},
	lead.Overloaded:     {pb.Reason_REASON_OVERLOADED, "", "too many requests are waiting: back off"},
	lead.NotAttached:    {pb.Reason_REASON_INVALID_ARGUMENT, "session", "the session is not attached to this stream: attach it first"},
	lead.MembersBusy:    {pb.Reason_REASON_BUSY, "name", "the membership cannot be changed now"},
	lead.MembersRefused: {pb.Reason_REASON_INVALID_ARGUMENT, "name", "the membership cannot be changed in this way"},
	lead.LevelBusy:      {pb.Reason_REASON_BUSY, "to_level", "the feature level cannot be raised now"},
	lead.LevelRefused:   {pb.Reason_REASON_INVALID_ARGUMENT, "to_level", "the feature level cannot be raised"},
	lead.OldAttachment:  {pb.Reason_REASON_STALE_REQUEST, "number", "another connection has attached the session with this number or a higher one: attach with a higher number"},
}

// FromRefused explains a refusal to the client.
func FromRefused(r lead.Refused) *pb.Error {
	row := refusedByLead[r.Reason]
	if r.Reason == lead.RefusedByMachine {
		row = refusedByMachine[r.Code]
	}
	e := &pb.Error{Reason: row.reason, Field: row.field, Message: row.message, Attached: r.Attached}
	switch {
	case r.Limit != "" && e.Reason == pb.Reason_REASON_QUOTA_EXCEEDED:
		e.Message = r.Limit // says which limit it is
	case r.Limit != "":
		e.Message += ": " + r.Limit
	}
	e.Holders = holders(r.Claim.Blockers)
	e.Position = r.Claim.Position
	if r.RetryAfter > 0 {
		e.RetryAfterMs = uint64((r.RetryAfter + time.Millisecond - 1) / time.Millisecond)
		e.Message += fmt.Sprintf(", for %d s more", (r.RetryAfter+time.Second-1)/time.Second)
	}
	return e
}

// QuotaExceeded returns the error for a limit of this node that was reached.
func QuotaExceeded(what string, limit int) *pb.Error {
	return &pb.Error{Reason: pb.Reason_REASON_QUOTA_EXCEEDED, Message: fmt.Sprintf("%s: at most %d", what, limit)}
}

// CodeOf returns the gRPC code of errors with this reason.
func CodeOf(r pb.Reason) codes.Code {
	if r < 0 || int(r) >= len(codeOf) {
		return codes.Unknown
	}
	return codeOf[r]
}

// ReasonText returns the reason as it appears in google.rpc.ErrorInfo.
func ReasonText(r pb.Reason) string { return strings.TrimPrefix(r.String(), "REASON_") }

// Err makes the gRPC error of a unary call or of the end of a stream: the code, a
// google.rpc.ErrorInfo with the reason, and the complete [pb.Error]. An error that says when to try
// again, and each OVERLOADED error, also has a google.rpc.RetryInfo.
func Err(e *pb.Error) error {
	details := []protoadapt.MessageV1{protoadapt.MessageV1Of(errorInfo(e)), protoadapt.MessageV1Of(e)}
	if delay := retryDelay(e); delay > 0 {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}))
	}
	s, err := status.New(CodeOf(e.GetReason()), e.GetMessage()).WithDetails(details...)
	if err != nil {
		// Our own messages always encode.
		panic("protocol: details of " + e.String() + ": " + err.Error())
	}
	return s.Err()
}

// retryDelay returns how long an error asks a client to wait; 0: it does not say.
func retryDelay(e *pb.Error) time.Duration {
	if ms := e.GetRetryAfterMs(); ms > 0 {
		return time.Duration(min(ms, maxRetryMs)) * time.Millisecond
	}
	if e.GetReason() == pb.Reason_REASON_OVERLOADED {
		return RetryDelay
	}
	return 0
}

// maxRetryMs keeps the delay within a time.Duration: one day.
const maxRetryMs = 24 * 60 * 60 * 1000

func errorInfo(e *pb.Error) *errdetails.ErrorInfo {
	info := &errdetails.ErrorInfo{Reason: ReasonText(e.GetReason()), Domain: Domain, Metadata: map[string]string{}}
	set := func(key, value string) {
		if value != "" {
			info.Metadata[key] = value
		}
	}
	set("field", e.GetField())
	set("leader_address", e.GetLeaderAddress())
	if p := e.GetPosition(); p > 0 {
		set("position", strconv.FormatUint(uint64(p), 10))
	}
	if o := e.GetOldest(); o > 0 {
		set("oldest", strconv.FormatUint(o, 10))
	}
	if n := e.GetNewest(); n > 0 {
		set("newest", strconv.FormatUint(n, 10))
	}
	if h := e.GetHolders(); len(h) > 0 {
		set("holder", h[0].GetSession())
		set("holder_token", strconv.FormatUint(h[0].GetToken(), 10))
	}
	return info
}

// FromErr returns the [pb.Error] in an error that [Err] made and gRPC carried; nil if there is
// none.
func FromErr(err error) *pb.Error {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return nil
	}
	for _, d := range s.GRPCStatus().Details() {
		if e, ok := d.(*pb.Error); ok {
			return e
		}
	}
	return nil
}
