package server

import (
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/service"
)

// bothPorts returns the handlers of the HTTP and the health port of a healthy node.
func bothPorts() (api, health http.Handler) {
	n := fixedStatus{Role: node.Leader, Leader: 1, Serving: true}
	log, hosts := slog.New(slog.DiscardHandler), []string{"localhost", "n1.example"}
	port := service.NewPort(nil, service.Bounds{Connections: 1}, log)
	paths := healthPaths(n, "", registry(n, newTally(), ""))
	w := newHTTP(hosts, port, paths, log)
	w.api = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	return w.http.Handler, newHealth(hosts, port, paths, log).http.Handler
}

// ask makes a request from this machine, with headers in pairs.
func ask(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = "127.0.0.1:1234"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestNothingCanBeChangedAtTheHealthPort(t *testing.T) {
	api, health := bothPorts()
	for _, c := range []struct {
		port           http.Handler
		method, target string
		want           int
	}{
		{health, "GET", "/livez", 200}, {health, "HEAD", "/livez", 200}, {health, "GET", "/readyz", 200}, {health, "GET", "/metrics", 200},
		{health, "POST", "/livez", 405}, {health, "POST", "/nothing", 405}, {health, "DELETE", "/metrics", 405}, {health, "GET", "/nothing", 404},
		{health, "POST", "/v1/revoke", 404}, {health, "GET", "/v1/locks", 404}, {health, "GET", "/v1/watch", 404},
		{health, "GET", "/debug/pprof/", 404}, {health, "GET", "/debug/pprof/cmdline", 404},
		{api, "GET", "/livez", 200}, {api, "GET", "/readyz", 200}, {api, "GET", "/metrics", 200}, {api, "POST", "/livez", 405},
		{api, "POST", "/v1/revoke", 418}, {api, "GET", "/v1/watch", 418}, {api, "GET", "/debug/pprof/cmdline", 200}, {api, "GET", "/nothing", 404},
	} {
		w := ask(c.port, c.method, "http://127.0.0.1:7403"+c.target)
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.target, w.Code, c.want)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "frame-ancestors") {
			t.Errorf("%s %s: the headers are %v", c.method, c.target, w.Header())
		}
	}
	if w := ask(health, "POST", "http://127.0.0.1:7403/v1/revoke"); !strings.Contains(w.Body.String(), "--http-listen") {
		t.Errorf("the wrong port does not say which is right: %s", w.Body)
	}
}

func TestNoPageOfAnotherSiteReachesAPort(t *testing.T) {
	api, health := bothPorts()
	for _, c := range []struct {
		name    string
		headers []string
		refused bool
	}{
		{"a program", nil, false},
		{"an address that was typed in", []string{"Sec-Fetch-Site", "none"}, false},
		{"a page of its own", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:7402"}, false},
		{"an image on another page", []string{"Sec-Fetch-Site", "cross-site"}, true},
		{"a page of a sister site", []string{"Sec-Fetch-Site", "same-site"}, true},
		{"a form of another page", []string{"Origin", "http://evil.example"}, true},
		{"another port", []string{"Origin", "http://127.0.0.1:8080"}, true},
		{"a page without an origin", []string{"Origin", "null"}, true},
		{"two origins", []string{"Origin", "http://127.0.0.1:7402", "Origin", "http://evil.example"}, true},
	} {
		for port, targets := range map[*http.Handler][]string{&api: {"/v1/locks", "/v1/revoke", "/metrics", "/debug/pprof/cmdline"}, &health: {"/metrics"}} {
			for _, target := range targets {
				if got := ask(*port, "GET", "http://127.0.0.1:7402"+target, c.headers...).Code; (got == http.StatusForbidden) != c.refused {
					t.Errorf("%s: %s was answered %d", c.name, target, got)
				}
			}
		}
		if got := ask(health, "GET", "http://127.0.0.1:7402/livez", c.headers...).Code; got != http.StatusOK {
			t.Errorf("%s: /livez was answered %d", c.name, got)
		}
	}
}

func TestOnlyProbesAnswerToAnyHostName(t *testing.T) {
	api, health := bothPorts()
	for _, port := range []http.Handler{api, health} {
		for target, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 421} {
			if got := ask(port, "GET", "http://evil.example"+target).Code; got != want {
				t.Errorf("%s was answered %d, want %d", target, got, want)
			}
		}
		if got := ask(port, "GET", "http://N1.example:7403/metrics").Code; got != http.StatusOK {
			t.Errorf("the node's own name was answered %d", got)
		}
	}
	if w := ask(api, "GET", "http://evil.example/v1/locks"); w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "--http-hosts") {
		t.Errorf("the API was answered %d: %s", w.Code, w.Body)
	}
}

func TestProfilesAreShortAndForThisMachine(t *testing.T) {
	api, _ := bothPorts()
	for _, target := range []string{"profile?seconds=86400", "trace?seconds=61", "trace?seconds=-1", "heap?seconds=600", "profile?seconds=1e9", "trace?seconds=NaN", "trace?seconds=x"} {
		if w := ask(api, "GET", "http://127.0.0.1:7402/debug/pprof/"+target); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "0 to 60") {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	r := httptest.NewRequest("GET", "http://127.0.0.1:7402/debug/pprof/cmdline", nil)
	r.RemoteAddr = "192.0.2.1:1234"
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("another machine was answered %d", w.Code)
	}
}

func TestThePlacesOfThePortsLeaveRoomForTheLog(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		nodes int
		want  places
	}{
		{0, 1, places{65_536, 1024, 64}}, // not known
		{1024, 1, places{288, 96, 64}},
		{20_000, 1, places{18_336, 1024, 64}},
		{131_072, 1, places{65_536, 1024, 64}},
		{math.MaxUint64, 3, places{65_536, 1024, 64}},
		{1024, 3, places{129, 42, 42}},
	} {
		got, err := share(c.limit, c.nodes)
		if err != nil || got != c.want {
			t.Errorf("%d files, %d nodes: %+v, %v, want %+v", c.limit, c.nodes, got, err, c.want)
		}
		if sum := c.nodes * (got.clients + got.http + got.health); c.limit > 0 && c.nodes == 1 && uint64(sum) > c.limit-(keptDescriptors-healthConnections) {
			t.Errorf("%d files: %d connections leave too few for the log", c.limit, sum)
		}
	}
	_, err := share(1023, 1)
	if err == nil || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("err = %v", err)
	}
	room, err := (&Config{Connections: 100}).bound(places{clients: 288})
	if err != nil || room.clients != 100 {
		t.Errorf("%+v, %v", room, err)
	}
	if _, err := (&Config{Connections: 300}).bound(places{clients: 288}); err == nil || !strings.Contains(err.Error(), "288") {
		t.Errorf("err = %v", err)
	}
}

func TestTheHealthPortIsTheOneAfterTheHTTPPort(t *testing.T) {
	for http, want := range map[string]string{
		"":                "127.0.0.1:7403",
		"10.0.0.1:7412":   "10.0.0.1:7413",
		"localhost:0":     "localhost:0",
		"[::1]:7402":      "[::1]:7403",
		"127.0.0.1:65535": "",
	} {
		c := Config{HTTPListen: http}.withDefaults()
		if c.HealthListen != want {
			t.Errorf("%q: %q, want %q", http, c.HealthListen, want)
		}
	}
	c := Config{Name: "n1", DataDir: "d", HTTPListen: "127.0.0.1:65535"}
	if err := c.withDefaults().validate(); err == nil || !strings.Contains(err.Error(), "HealthListen: is required") {
		t.Errorf("err = %v", err)
	}
}
