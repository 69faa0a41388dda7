package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// probes are the paths that answer anyone, under any host name: they reveal only whether the node
// is well.
var probes = []string{"/livez", "/readyz"}

// guarded keeps out web pages, for which a browser can reach every port that it can reach itself,
// and says so to browsers.
func guarded(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		switch {
		case slices.Contains(probes, r.URL.Path):
		case !ownHost(hosts, r.Host):
			http.Error(w, "host name not allowed on this port: start the server with --http-hosts to allow it", http.StatusMisdirectedRequest)
			return
		case fromElsewhere(r):
			http.Error(w, "requests from other sites are not allowed on this port", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownHost reports whether a request is meant for this node. Otherwise a web page whose host name
// resolves to this machine could read the port through its visitor's browser; with an IP address as
// its host it cannot.
func ownHost(hosts []string, host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || slices.ContainsFunc(hosts, func(own string) bool { return strings.EqualFold(own, host) })
}

// fromElsewhere reports whether a browser sent the request for a page of another site. A GET needs
// no permission from us: an image or a link is enough to send one.
func fromElsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return true
		}
	}
	return false
}
