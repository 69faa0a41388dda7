package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// A body is an error as sent over HTTP. Its code is the gRPC code.
type body struct {
	Code          string            `json:"code"`
	Reason        string            `json:"reason,omitempty"`
	Message       string            `json:"message"`
	Field         string            `json:"field,omitempty"`
	LeaderAddress string            `json:"leader_address,omitempty"`
	Position      uint32            `json:"position,omitempty"`
	Oldest        uint64            `json:"oldest,omitempty,string"`
	Newest        uint64            `json:"newest,omitempty,string"`
	Holders       []json.RawMessage `json:"holders,omitempty"`
}

// names are the code names as in the gRPC documentation; the Go package uses others.
var names = map[codes.Code]string{
	codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.PermissionDenied: "PERMISSION_DENIED",
	codes.ResourceExhausted: "RESOURCE_EXHAUSTED", codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED",
	codes.OutOfRange: "OUT_OF_RANGE", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL",
	codes.Unavailable: "UNAVAILABLE", codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
	codes.AlreadyExists: "ALREADY_EXISTS",
}

// reasons are used for errors that the service did not make: the gateway's own, and gRPC's.
var reasons = map[codes.Code]pb.Reason{
	codes.InvalidArgument:   pb.Reason_REASON_INVALID_ARGUMENT,
	codes.NotFound:          pb.Reason_REASON_UNSUPPORTED,
	codes.Unimplemented:     pb.Reason_REASON_UNSUPPORTED,
	codes.ResourceExhausted: pb.Reason_REASON_QUOTA_EXCEEDED,
	codes.Unavailable:       pb.Reason_REASON_UNAVAILABLE,
}

// ofStatus makes the content of an error that has none.
func ofStatus(err error) *pb.Error {
	st := status.Convert(err)
	// The JSON decoder randomly uses no-break spaces, so that nobody compares its texts.
	e := &pb.Error{Reason: reasons[st.Code()], Message: strings.ReplaceAll(st.Message(), "\u00a0", " ")}
	if st.Code() == codes.InvalidArgument {
		e.Field = "body"
		if name, ok := strings.CutPrefix(e.GetMessage(), queryProblem); ok {
			e.Field, e.Message = "query", name
		}
	}
	return e
}

// writeError answers with the error of a call.
func writeError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	if md, ok := runtime.ServerMetadataFromContext(ctx); ok {
		tellCluster(w, md.HeaderMD)
	}
	e := fromError(err)
	code := status.Code(err)
	if e.GetReason() == pb.Reason_REASON_OVERLOADED {
		w.Header().Set("Retry-After", strconv.Itoa(int(protocol.RetryDelay.Seconds())))
	}
	send(w, runtime.HTTPStatusFromCode(code), content(code, e))
}

// write answers with an error of the gateway itself.
func write(w http.ResponseWriter, status int, e *pb.Error) {
	send(w, status, content(protocol.CodeOf(e.GetReason()), e))
}

func send(w http.ResponseWriter, status int, content []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(content, '\n')) // a client that does not read it is gone
}

// content is the JSON text of an error.
func content(code codes.Code, e *pb.Error) []byte {
	b := body{
		Code: names[code], Message: e.GetMessage(), Field: e.GetField(),
		LeaderAddress: e.GetLeaderAddress(), Position: e.GetPosition(), Oldest: e.GetOldest(), Newest: e.GetNewest(),
	}
	if e.GetReason() != pb.Reason_REASON_UNSPECIFIED {
		b.Reason = protocol.ReasonText(e.GetReason())
	}
	for _, h := range e.GetHolders() {
		if text, err := marshal.Marshal(h); err == nil { // text received over the wire is UTF-8
			b.Holders = append(b.Holders, text)
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(b); err != nil {
		panic("gateway: " + err.Error()) // strings and numbers always encode
	}
	return bytes.TrimSpace(out.Bytes())
}

var marshal = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}
