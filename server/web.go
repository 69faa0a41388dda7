package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/lockstep-dev/lockstep/server/gateway"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/service"
)

const (
	// webHeadTimeout is how long an HTTP request may take to send its headers; all of them are
	// small.
	webHeadTimeout = 5 * time.Second
	// webIdleTimeout closes idle connections.
	webIdleTimeout = time.Minute
	// webConnections bounds the connections. A client of the JSON API that waits for a lock or
	// watches keeps one.
	webConnections = 1024
	// webHeaderBytes bounds the headers of a request.
	webHeaderBytes = 16 << 10
	// webStopTimeout bounds how long requests in progress delay shutdown.
	webStopTimeout = time.Second

	// healthConnections bounds the connections of the health port: a few supervisors and scrapers,
	// each of which finishes quickly.
	healthConnections = 64
	// healthTimeout bounds a request on that port, from its headers to the end of its answer.
	healthTimeout = 5 * time.Second

	// webWriteTimeout is how long a client of the JSON API may take to read what it is sent.
	webWriteTimeout = 10 * time.Second

	// hungLoop is how long the node's loop may go without a turn before the process counts as dead.
	// It turns at least every 50 ms; on a machine that swaps, that can take some seconds.
	hungLoop = 10 * time.Second
	// maxProfile bounds a profile or trace.
	maxProfile = time.Minute
)

// A statusReader is what the HTTP ports need from a node.
type statusReader interface{ Status() node.Status }

// web is an HTTP port: the one of the JSON API, or the one of health and metrics.
type web struct {
	what string // for errors
	port *service.Port
	http *http.Server

	// local connects to the node's own service for the JSON API; nil: this port has no JSON API.
	local func() (*grpc.ClientConn, error)
	api   http.Handler // made by run
}

func newWeb(what string, port *service.Port, hosts []string, paths http.Handler, log *slog.Logger) *web {
	w := &web{what: what, port: port}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // only for wrongPort
	w.http = &http.Server{
		Handler:           wrongPort(what, guarded(hosts, w.route(paths))),
		ReadHeaderTimeout: webHeadTimeout,
		IdleTimeout:       webIdleTimeout,
		MaxHeaderBytes:    webHeaderBytes,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1},
		ConnState:         port.Track,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return w
}

// newHTTP makes the port of the JSON API. It also answers health requests, as it did when it was
// the only port.
func newHTTP(hosts []string, port *service.Port, health *http.ServeMux, log *slog.Logger) *web {
	mux := http.NewServeMux()
	mux.Handle("/", health)
	for path, profile := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.HandleFunc("GET /debug/pprof/"+path, forOperators(profile))
	}
	return newWeb("HTTP port", port, hosts, mux, log)
}

// newHealth makes the port of health and metrics: nothing on it changes anything or keeps a
// connection for long, so that it answers while the other ports are full.
func newHealth(hosts []string, port *service.Port, health *http.ServeMux, log *slog.Logger) *web {
	w := newWeb("health port", port, hosts, health, log)
	w.http.ReadHeaderTimeout, w.http.ReadTimeout, w.http.WriteTimeout = healthTimeout, healthTimeout, healthTimeout
	return w
}

// healthPaths are what both ports answer.
func healthPaths(n statusReader, dir string, metrics *prometheus.Registry) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", live(n))
	mux.HandleFunc("GET /readyz", ready(n, dir))
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, gateway.Prefix):
			http.Error(w, "this is the health port: the JSON API is on the HTTP port (--http-listen, 7402)", http.StatusNotFound)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are supported", http.StatusMethodNotAllowed)
		default:
			http.NotFound(w, r)
		}
	})
	return mux
}

// wrongPort answers a client that speaks gRPC here with what it should do instead. Nothing else is
// served over HTTP/2.
func wrongPort(what string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", strconv.Itoa(int(codes.Unavailable)))
		h.Set("Grpc-Message", "this is the "+what+" of a node: clients use its client port, 7400 by default")
		h.Set("Connection", "close")
	})
}

// forOperators answers only this machine, and no request that would profile the node for long.
func forOperators(profile http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !from.Addr().Unmap().IsLoopback() {
			http.Error(w, "profiles are only served to this machine: use a tunnel (ssh -L, kubectl port-forward)", http.StatusForbidden)
			return
		}
		if seconds := r.URL.Query().Get("seconds"); seconds != "" {
			if n, err := strconv.ParseFloat(seconds, 64); err != nil || !(n >= 0 && n <= maxProfile.Seconds()) {
				http.Error(w, fmt.Sprintf("seconds is %.20q, must be 0 to %.0f", seconds, maxProfile.Seconds()), http.StatusBadRequest)
				return
			}
		}
		profile(w, r)
	}
}

// route leads to the JSON API before the mux could clean the path: a lock's name is part of it.
func (w *web) route(rest http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.api != nil { // the previous request on this connection may have left a write deadline
			// A closed connection is noticed on write.
			_ = http.NewResponseController(rw).SetWriteDeadline(time.Time{})
		}
		if w.api != nil && strings.HasPrefix(r.URL.Path, gateway.Prefix) {
			w.api.ServeHTTP(timely{rw}, r)
			return
		}
		rest.ServeHTTP(rw, r)
	})
}

// A timely writer gives the client webWriteTimeout to take each write.
type timely struct{ http.ResponseWriter }

// Unwrap is for [http.ResponseController].
func (t timely) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Write writes a part of an answer.
func (t timely) Write(b []byte) (int, error) {
	_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(time.Now().Add(webWriteTimeout)) // a closed connection is noticed on write
	return t.ResponseWriter.Write(b)
}

// run serves until ctx is done. It closes the listener.
func (w *web) run(ctx context.Context) error {
	if w.local != nil {
		conn, err := w.local()
		if err != nil {
			return fmt.Errorf("server: %s: %w", w.what, err)
		}
		defer conn.Close()
		if w.api, err = gateway.New(conn); err != nil {
			return fmt.Errorf("server: %s: %w", w.what, err)
		}
	}
	served := make(chan error, 1)
	go func() { served <- w.http.Serve(w.port) }()
	select {
	case err := <-served:
		return fmt.Errorf("server: %s: %w", w.what, err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), webStopTimeout)
	defer cancel()
	if err := w.http.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = w.http.Close() // anything still in progress is a profile or a scrape
	}
	<-served
	return nil
}

// live answers 200 as long as the node's loop turns, whatever its role: restarting a node that is
// cut off from the others does not help.
func live(n statusReader) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if age := n.Status().Age; age > hungLoop {
			http.Error(w, fmt.Sprintf("the main loop of the node has been stuck for %v", age.Round(time.Millisecond)), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// ownHosts are the host names that the HTTP ports answer to, in addition to IP addresses.
func ownHosts(cfg Config) []string {
	hosts := append([]string{"localhost"}, cfg.HTTPHosts...)
	for _, address := range []string{cfg.Listen, cfg.HTTPListen, cfg.HealthListen, cfg.AdvertiseClient} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
