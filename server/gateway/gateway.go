package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	generated "github.com/lockstep-dev/lockstep/server/gateway/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

const (
	// Prefix is the prefix of all API paths.
	Prefix = "/v1/"
	// maxBodyBytes bounds the body of a request. The service accepts 64 KiB of the binary form,
	// which is shorter than JSON.
	maxBodyBytes = 256 << 10
	// bodyTimeout is how long a client has to send the body.
	bodyTimeout = 10 * time.Second
)

// A Handler serves all paths below [Prefix]. Create it with New.
type Handler struct {
	calls *runtime.ServeMux
	watch pb.LockServiceClient
}

// New returns a handler that makes its calls over conn, which must outlive it. It starts nothing.
func New(conn grpc.ClientConnInterface) (*Handler, error) {
	beStrict()
	h := &Handler{watch: pb.NewLockServiceClient(conn), calls: runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, codec{}),
		runtime.WithErrorHandler(writeError),
		runtime.WithRoutingErrorHandler(misrouted),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithIncomingHeaderMatcher(onlyCluster),
		runtime.WithOutgoingHeaderMatcher(onlyCluster),
		runtime.WithOutgoingTrailerMatcher(noHeader),
	)}
	ctx := context.Background() // nothing depends on it
	err := errors.Join(
		generated.RegisterLockServiceHandlerClient(ctx, h.calls, pb.NewLockServiceClient(conn)),
		generated.RegisterAdminServiceHandlerClient(ctx, h.calls, pb.NewAdminServiceClient(conn)),
	)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return h, nil
}

// noHeader keeps HTTP headers and gRPC metadata apart.
func noHeader(string) (string, bool) { return "", false }

// onlyCluster lets only the cluster id through.
func onlyCluster(key string) (string, bool) {
	return clusterHeader, strings.EqualFold(key, protocol.ClusterKey)
}

// clusterHeader is the HTTP header in the canonical form of package net/http.
const clusterHeader = "Lockstep-Cluster"

// tellCluster copies the cluster id of an answer to the HTTP header.
func tellCluster(w http.ResponseWriter, md metadata.MD) string {
	for _, id := range md.Get(protocol.ClusterKey) {
		w.Header().Set(clusterHeader, id)
		return id
	}
	return ""
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if problem := textProblem(r); problem != nil {
		write(w, http.StatusBadRequest, problem)
		return
	}
	if r.Method == http.MethodPost {
		if status, problem := takeBody(w, r); problem != nil {
			write(w, status, problem)
			return
		}
	}
	if r.Method == http.MethodGet && r.URL.Path == Prefix+"watch" {
		h.serveWatch(w, r)
		return
	}
	h.calls.ServeHTTP(w, r)
}

// textProblem reports text that the protocol cannot carry.
func textProblem(r *http.Request) *pb.Error {
	if !utf8.ValidString(r.URL.Path) {
		return invalid("path", "the path must be UTF-8, percent-encoded")
	}
	values, err := parseQuery(r)
	if err != nil {
		return invalid("query", "cannot parse the query: %v", err)
	}
	for key, all := range values {
		for _, value := range all {
			if !utf8.ValidString(key + value) {
				return invalid("query", "parameters must be UTF-8, percent-encoded")
			}
		}
	}
	return nil
}

// takeBody reads the complete body, because only then does HTTP notice when the client disconnects.
func takeBody(w http.ResponseWriter, r *http.Request) (int, *pb.Error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, invalid("Content-Type", "a request with a body needs the header Content-Type: application/json")
	}
	deadline := http.NewResponseController(w)
	// A closed connection is noticed on read.
	_ = deadline.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge, &pb.Error{
			Reason: pb.Reason_REASON_QUOTA_EXCEEDED, Field: "body",
			Message: fmt.Sprintf("body: is longer than the limit of %d bytes", maxBodyBytes),
		}
	}
	if err != nil {
		return http.StatusBadRequest, invalid("body", "cannot read the body")
	}
	_ = deadline.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(body))
	return 0, nil
}

func invalid(field, format string, args ...any) *pb.Error {
	return &pb.Error{Reason: pb.Reason_REASON_INVALID_ARGUMENT, Field: field, Message: fmt.Sprintf(format, args...)}
}

// misrouted answers a request that matches no rule.
func misrouted(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, status int) {
	e := &pb.Error{Reason: pb.Reason_REASON_UNSUPPORTED, Field: "path", Message: "no such path; see docs/openapi.json"}
	switch status {
	case http.StatusMethodNotAllowed:
		allow := allowed(r.URL.Path)
		w.Header().Set("Allow", allow)
		e.Field, e.Message = "method", "this path supports "+allow
	case http.StatusBadRequest:
		e = invalid("path", "the path must start with a slash")
	}
	write(w, status, e)
}

// allowed returns the methods of a path that exists.
func allowed(path string) string {
	rest := strings.TrimPrefix(path, Prefix)
	switch first, _, more := strings.Cut(rest, "/"); {
	case rest == "sessions":
		return "GET, POST"
	case first == "sessions" && more, rest == "revoke", rest == "upgrade":
		return "POST"
	default:
		return "GET"
	}
}

// fromError returns the content of the error of a call.
func fromError(err error) *pb.Error {
	if e := protocol.FromErr(err); e != nil {
		return e
	}
	return ofStatus(err)
}
