package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// watchWriteTimeout is how long a watcher may take to read what it is sent before it is
// disconnected.
const watchWriteTimeout = 10 * time.Second

// serveWatch streams events as server-sent events. The id of an event is its cluster and its
// number; a browser that reconnects sends the last one in Last-Event-ID.
func (h *Handler) serveWatch(w http.ResponseWriter, r *http.Request) {
	req, problem := watchRequest(r)
	if problem != nil {
		write(w, http.StatusBadRequest, problem)
		return
	}
	forwarded := metadata.Pairs("x-forwarded-for", r.RemoteAddr)
	forwarded.Append(protocol.ClusterKey, r.Header.Values(clusterHeader)...)
	ctx := metadata.NewOutgoingContext(r.Context(), forwarded)
	stream, err := h.watch.Watch(ctx, req)
	if err != nil {
		writeError(ctx, nil, nil, w, r, err)
		return
	}
	first, err := stream.Recv()  // arrives at once: it says where the watch begins
	header, _ := stream.Header() // available by then; a stream without one has failed
	cluster := tellCluster(w, header)
	if err != nil {
		writeError(ctx, nil, nil, w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	for resp := first; ; {
		// A closed connection is noticed on write.
		_ = out.SetWriteDeadline(time.Now().Add(watchWriteTimeout))
		if _, err := w.Write(lines(cluster, resp)); err != nil || out.Flush() != nil {
			return
		}
		if resp, err = stream.Recv(); err != nil {
			farewell(w, err)
			return
		}
	}
}

// watchRequest reads the parameters.
func watchRequest(r *http.Request) (*pb.WatchRequest, *pb.Error) {
	req := &pb.WatchRequest{}
	values, err := parseQuery(r)
	if err == nil {
		err = strictQuery{}.Parse(req, values, utilities.NewDoubleArray(nil))
	}
	if err != nil {
		return nil, invalid("query", "%s", strings.TrimPrefix(err.Error(), queryProblem))
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		cluster, number, found := strings.Cut(last, ":")
		if !found {
			cluster, number = "", last
		}
		if req.After, err = strconv.ParseUint(number, 10, 64); err != nil {
			return nil, invalid("Last-Event-ID", "Last-Event-ID: must be the id of an event, such as CLUSTER:NUMBER, or its number alone")
		}
		req.Cluster, req.FromOldest = cluster, false
	}
	return req, nil
}

// lines formats the events of a response. If the watch has come further than the events show, a
// final line says how far.
func lines(cluster string, resp *pb.WatchResponse) []byte {
	var b bytes.Buffer
	if cluster != "" {
		cluster += ":"
	}
	last := uint64(0)
	for _, e := range resp.GetEvents() {
		last = e.GetNumber()
		kind := strings.ToLower(strings.TrimPrefix(e.GetKind().String(), "EVENT_KIND_"))
		text, err := codec{}.Marshal(e)
		if err != nil {
			continue // its text is UTF-8, so encoding never fails
		}
		fmt.Fprintf(&b, "id: %s%d\nevent: %s\ndata: %s\n\n", cluster, last, kind, bytes.TrimSpace(text))
	}
	if reached := resp.GetReached(); reached > last || len(resp.GetEvents()) == 0 {
		fmt.Fprintf(&b, "id: %s%d\nevent: reached\ndata: {\"reached\":\"%d\"}\n\n", cluster, reached, reached)
	}
	return b.Bytes()
}

// farewell reports why the watch ends.
func farewell(w io.Writer, err error) {
	code := status.Code(err)
	if code == codes.Canceled {
		return // the client is gone
	}
	fmt.Fprintf(w, "event: error\ndata: %s\n\n", content(code, fromError(err)))
}
