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
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/lockstep-dev/lockstep/server/gateway"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/service"
)

const (
	// A request over HTTP has this long to send its head; all of them are small.
	webHeadTimeout = 5 * time.Second
	// webIdleTimeout closes connections that nobody uses.
	webIdleTimeout = time.Minute
	// webConnections bounds the connections. A client of the JSON API that waits for a lock or watches keeps one.
	webConnections = 1024
	// webStopTimeout bounds how long requests under way delay the end.
	webStopTimeout = time.Second
	// hungLoop is how long the node's loop may go without a turn before the process counts as
	// dead. It turns every 50 ms at least; a machine that swaps can take some seconds.
	hungLoop = 10 * time.Second
)

// A statusReader is what the web needs of a node.
type statusReader interface{ Status() node.Status }

// web is the HTTP port.
type web struct {
	listener net.Listener
	http     *http.Server

	// local reaches the node's own service for the JSON API, which is not there if it is nil.
	local func() (*grpc.ClientConn, error)
	api   http.Handler // made by run
}

func newWeb(cfg Config, l net.Listener, n statusReader, t *tally) *web {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", live(n))
	mux.HandleFunc("GET /readyz", ready(n, cfg.DataDir))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry(n, t, cfg.DataDir), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	w := &web{listener: service.LimitConnections(l, webConnections, cfg.Logger)}
	w.http = &http.Server{
		Handler:           onlyFor(ownHosts(cfg), w.route(mux)),
		ReadHeaderTimeout: webHeadTimeout,
		IdleTimeout:       webIdleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return w
}

// route leads to the JSON API before the mux could clean the path: the name of a lock is part of it.
func (w *web) route(rest http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.api != nil && strings.HasPrefix(r.URL.Path, gateway.Prefix) {
			w.api.ServeHTTP(rw, r)
			return
		}
		rest.ServeHTTP(rw, r)
	})
}

// run serves until ctx is done. It closes the listener.
func (w *web) run(ctx context.Context) error {
	if w.local != nil {
		conn, err := w.local()
		if err != nil {
			return fmt.Errorf("server: HTTP: %w", err)
		}
		defer conn.Close()
		if w.api, err = gateway.New(conn); err != nil {
			return fmt.Errorf("server: HTTP: %w", err)
		}
	}
	served := make(chan error, 1)
	go func() { served <- w.http.Serve(w.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("server: HTTP: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), webStopTimeout)
	defer cancel()
	if err := w.http.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = w.http.Close() // what is still under way is a profile or a scrape
	}
	<-served
	return nil
}

// live answers 200 as long as the node's loop turns, whatever its role: a node that is cut off from
// the others is not helped by a restart.
func live(n statusReader) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if age := n.Status().Age; age > hungLoop {
			http.Error(w, fmt.Sprintf("the node's loop has not turned for %v", age.Round(time.Millisecond)), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// ownHosts are the host names that this port answers to, beside IP addresses.
func ownHosts(cfg Config) []string {
	hosts := append([]string{"localhost"}, cfg.HTTPHosts...)
	for _, address := range []string{cfg.Listen, cfg.HTTPListen, cfg.AdvertiseClient} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// onlyFor refuses requests that are meant for another host. A web page whose name resolves to this
// machine could otherwise read the port from its visitor's browser; it cannot do so with an IP
// address in its place.
func onlyFor(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil && !slices.ContainsFunc(hosts, func(own string) bool { return strings.EqualFold(own, host) }) {
			http.Error(w, "this port does not answer to that host name; see HTTPHosts", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
