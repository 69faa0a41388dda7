package httpfence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
)

func grant(token lockstep.Token) fence.Grant {
	return fence.Grant{Backend: "memory:test", Lock: "orders/42", Token: token}
}

func guarded(t *testing.T, cfg Config, h http.HandlerFunc) http.Handler {
	t.Helper()
	if cfg.Guard == nil {
		cfg.Guard = fence.NewMemory(0)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m.Wrap(h)
}

func request(method, target string, token lockstep.Token) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader("body"))
	if token != 0 {
		SetGrant(r.Header, grant(token))
	}
	return r
}

// A call is a request in the background.
type call struct {
	done chan struct{}
	rec  *httptest.ResponseRecorder
}

func start(h http.Handler, r *http.Request) *call {
	c := &call{done: make(chan struct{}), rec: httptest.NewRecorder()}
	go func() {
		defer close(c.done)
		h.ServeHTTP(c.rec, r)
	}()
	return c
}

func (c *call) status() int {
	<-c.done
	return c.rec.Code
}

func status(h http.Handler, r *http.Request) int { return start(h, r).status() }

// held is a handler whose calls end when they are released, by the token of the request.
type held struct {
	began chan lockstep.Token
	letGo map[lockstep.Token]chan struct{}
}

func newHeld(tokens ...lockstep.Token) *held {
	h := &held{began: make(chan lockstep.Token, 100), letGo: map[lockstep.Token]chan struct{}{}}
	for _, token := range tokens {
		h.letGo[token] = make(chan struct{})
	}
	return h
}

func (h *held) serve(_ http.ResponseWriter, r *http.Request) {
	g, _ := GrantFrom(r.Context())
	h.began <- g.Token
	if c := h.letGo[g.Token]; c != nil {
		<-c
	}
}

func (h *held) running(t *testing.T, want ...lockstep.Token) {
	t.Helper()
	synctest.Wait()
	for _, token := range want {
		select {
		case got := <-h.began:
			if got != token {
				t.Errorf("token %d runs, want %d", got, token)
			}
		default:
			t.Errorf("token %d does not run", token)
		}
	}
	if len(h.began) > 0 {
		t.Errorf("token %d runs, it should wait", <-h.began)
	}
}

func TestANewerRequestWaitsForOlderOnesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newHeld(5, 7)
		h := guarded(t, Config{}, slow.serve)
		first, second := start(h, request("PUT", "/x", 5)), start(h, request("PUT", "/x", 5))
		slow.running(t, 5, 5) // concurrently: they are from one holder
		newer := start(h, request("PUT", "/x", 7))
		slow.running(t)
		if got := status(h, request("PUT", "/x", 6)); got != http.StatusPreconditionFailed {
			t.Errorf("an older request after a newer one knocked: %d, want 412", got)
		}
		newest := start(h, request("PUT", "/x", 8))
		if got := status(h, request("PUT", "/y", 1)); got != http.StatusOK {
			t.Errorf("another resource: %d, want 200", got)
		}
		slow.running(t, 1)
		slow.letGo[5] <- struct{}{}
		slow.running(t)
		slow.letGo[5] <- struct{}{}
		slow.running(t, 7)
		slow.letGo[7] <- struct{}{}
		slow.running(t, 8)
		for _, c := range []*call{first, second, newer, newest} {
			if got := c.status(); got != http.StatusOK {
				t.Errorf("status %d, want 200", got)
			}
		}
	})
}

func TestTheWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newHeld(5)
		h := guarded(t, Config{Wait: 3 * time.Second}, slow.serve)
		older := start(h, request("PUT", "/x", 5))
		slow.running(t, 5)
		began := time.Now()
		newer := start(h, request("PUT", "/x", 7))
		if got := newer.status(); got != http.StatusServiceUnavailable || time.Since(began) != 3*time.Second {
			t.Errorf("status %d after %v, want 503 after 3 s", got, time.Since(began))
		}
		if newer.rec.Header().Get("Retry-After") == "" || !errors.Is(Refusal(newer.rec.Result()), fence.ErrBusy) {
			t.Errorf("%v, %v, want ErrBusy with Retry-After", newer.rec.Header(), Refusal(newer.rec.Result()))
		}
		if got := status(h, request("GET", "/x", 6)); got != http.StatusPreconditionFailed {
			t.Errorf("the door is open for older ones again: %d, want 412", got)
		}
		slow.letGo[5] <- struct{}{}
		older.status()
		if got := status(h, request("PUT", "/x", 7)); got != http.StatusOK {
			t.Errorf("the retry: %d, want 200", got)
		}
	})
}

func TestAWaitInVainDoesNotUseUpTheOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newHeld(5)
		h := guarded(t, Config{Step: func(*http.Request) fence.Step { return fence.WriteOnce }}, slow.serve)
		older := start(h, request("PUT", "/x", 5))
		slow.running(t, 5)
		if got := status(h, request("PUT", "/x", 7)); got != http.StatusServiceUnavailable {
			t.Errorf("status %d, want 503", got)
		}
		slow.letGo[5] <- struct{}{}
		older.status()
		for i, want := range []int{http.StatusOK, http.StatusPreconditionFailed} {
			if got := status(h, request("PUT", "/x", 7)); got != want {
				t.Errorf("attempt %d: %d, want %d", i+1, got, want)
			}
		}
	})
}

func TestAClientThatGoesAwayStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newHeld(5)
		h := guarded(t, Config{}, slow.serve)
		older := start(h, request("PUT", "/x", 5))
		slow.running(t, 5)
		ctx, cancel := context.WithCancel(t.Context())
		gone := start(h, request("PUT", "/x", 7).WithContext(ctx))
		slow.running(t)
		cancel()
		gone.status()
		slow.running(t) // its handler never ran
		slow.letGo[5] <- struct{}{}
		older.status()
	})
}

func TestAHandlerThatPanicsLetsGoOfTheResource(t *testing.T) {
	m, err := New(Config{Guard: fence.NewMemory(0)})
	if err != nil {
		t.Fatal(err)
	}
	h := m.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if g, _ := GrantFrom(r.Context()); g.Token == 5 {
			panic("handler")
		}
	}))
	func() {
		defer func() { recover() }()
		h.ServeHTTP(httptest.NewRecorder(), request("PUT", "/x", 5))
	}()
	if got := status(h, request("PUT", "/x", 6)); got != http.StatusOK {
		t.Errorf("status %d, want 200", got)
	}
	if len(m.inflight.mu.lines) != 0 {
		t.Errorf("%d resources have requests in flight, want none", len(m.inflight.mu.lines))
	}
}

func TestRequestsAtOneResourceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newHeld(5)
		h := guarded(t, Config{MaxInFlight: 2}, slow.serve)
		calls := []*call{start(h, request("PUT", "/x", 5)), start(h, request("PUT", "/x", 5))}
		slow.running(t, 5, 5)
		if got := status(h, request("PUT", "/x", 5)); got != http.StatusServiceUnavailable {
			t.Errorf("one too many: %d, want 503", got)
		}
		close(slow.letGo[5])
		for _, c := range calls {
			c.status()
		}
	})
}

func TestReadsAndWrites(t *testing.T) {
	var counts fence.Counts
	h := guarded(t, Config{Observer: &counts}, func(w http.ResponseWriter, r *http.Request) {})
	tests := []struct {
		name   string
		method string
		target string
		token  lockstep.Token
		want   int
	}{
		{"a write without a token is refused", "PUT", "/x", 0, 428},
		{"a write with a token passes", "PUT", "/x", 5, 200},
		{"a read without a token passes", "GET", "/x", 0, 200},
		{"a read with a newer token raises the mark", "GET", "/x", 7, 200},
		{"so that an older write is refused", "PUT", "/x", 5, 412},
		{"and an older read", "HEAD", "/x", 6, 412},
		{"under another spelling of the path too", "DELETE", "/a/..//x/?q=1", 6, 412},
		{"another resource is free", "PATCH", "/y", 1, 200},
		{"a path longer than a name may be is malformed", "PUT", "/" + strings.Repeat("x", fence.MaxResourceBytes), 1, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := status(h, request(tt.method, tt.target, tt.token)); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
		})
	}
	if got, want := counts.Tally(), (fence.Tally{Accepted: 3, Stale: 3, NoToken: 1, Invalid: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

func TestTheProblemNamesBothTokens(t *testing.T) {
	h := guarded(t, Config{}, func(http.ResponseWriter, *http.Request) {})
	status(h, request("PUT", "/x", lockstep.MaxToken))
	c := start(h, request("PUT", "/x", 7))
	if c.status() != http.StatusPreconditionFailed || c.rec.Header().Get("Content-Type") != "application/problem+json" {
		t.Fatalf("status %d, headers %v", c.rec.Code, c.rec.Header())
	}
	var body map[string]any
	if err := json.Unmarshal(c.rec.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"type": "urn:lockstep:fence:stale", "status": 412.0, "token": "7", "seen": "9007199254740991",
		"lock": "orders/42", "seen_lock": "orders/42", "backend": "memory:test", "seen_backend": "memory:test",
	} {
		if body[field] != want {
			t.Errorf("%s is %v, want %v", field, body[field], want)
		}
	}
	if detail, _ := body["detail"].(string); !strings.Contains(detail, "do not retry") {
		t.Errorf("the detail is %q, it should say what to do", detail)
	}
}

func TestARefusalIsReadAsItWasSent(t *testing.T) {
	h := guarded(t, Config{Step: func(r *http.Request) fence.Step {
		if r.Method == "POST" {
			return fence.WriteOnce
		}
		return ByMethod(r)
	}}, func(http.ResponseWriter, *http.Request) {})
	status(h, request("PUT", "/x", 7))
	foreign, huge := request("PUT", "/x", 7), request("PUT", "/x", lockstep.MaxToken+1)
	foreign.Header.Set(LockHeader, "other")
	for _, tt := range []struct {
		r    *http.Request
		want error
		seen lockstep.Token
	}{
		{request("PUT", "/x", 6), fence.ErrStale, 7},
		{request("POST", "/x", 7), fence.ErrAlready, 7},
		{foreign, fence.ErrForeign, 7},
		{request("PUT", "/x", 0), fence.ErrNoToken, 0},
		{huge, lockstep.ErrInvalid, 0},
	} {
		c := start(h, tt.r)
		c.status()
		resp := c.rec.Result()
		err := Refusal(resp)
		if !errors.Is(err, tt.want) || !fence.Refused(err) {
			t.Errorf("%v, want %v", err, tt.want)
		}
		if refused, ok := errors.AsType[*fence.RefusedError](err); ok && refused.Mark.Token != tt.seen {
			t.Errorf("%v has seen %d, want %d", tt.want, refused.Mark.Token, tt.seen)
		}
		if again := Refusal(resp); again == nil || again.Error() != err.Error() {
			t.Errorf("read again: %v, want %v", again, err)
		}
	}
}

func TestOtherResponsesAreNoRefusals(t *testing.T) {
	for _, tt := range []struct {
		media, body string
		refusal     bool
	}{
		{"application/json", `{"type":"urn:lockstep:fence:stale"}`, false},
		{"application/problem+json", `{"type":"about:blank","status":412}`, false},
		{"application/problem+json", `<html>`, false},
		{"application/problem+json; charset=utf-8", `{"type":"urn:lockstep:fence:stale","token":"1","seen":"2"}`, true},
		{"application/problem+json", `{"type":"urn:lockstep:fence:failed"}`, true},
		{"", "", false},
	} {
		rec := httptest.NewRecorder()
		rec.Header().Set("Content-Type", tt.media)
		rec.WriteString(tt.body)
		if err := Refusal(rec.Result()); (err != nil) != tt.refusal {
			t.Errorf("%s %s: %v", tt.media, tt.body, err)
		}
	}
}

// failing is a guard that cannot be reached.
type failing struct{}

func (failing) Admit(context.Context, string, fence.Grant, fence.Step) error {
	return errors.New("dial tcp 10.0.0.7: no route")
}

func TestWithoutItsGuardNothingRuns(t *testing.T) {
	var log bytes.Buffer
	h := guarded(t, Config{Guard: failing{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(http.ResponseWriter, *http.Request) {
		t.Error("the handler ran")
	})
	c := start(h, request("PUT", "/x", 5))
	if got := c.status(); got != http.StatusInternalServerError || strings.Contains(c.rec.Body.String(), "10.0.0.7") {
		t.Errorf("status %d, body %s, want 500 without what is inside", got, c.rec.Body)
	}
	if !strings.Contains(log.String(), "10.0.0.7") {
		t.Errorf("the log says %q", log.String())
	}
}

func TestAMiddlewareNeedsAGuard(t *testing.T) {
	for _, cfg := range []Config{{}, {Guard: failing{}, Wait: -1}, {Guard: failing{}, MaxInFlight: -1}} {
		if _, err := New(cfg); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", cfg, err)
		}
	}
}

func TestResourcesOfTheServersOwn(t *testing.T) {
	h := guarded(t, Config{Resource: func(r *http.Request) (string, error) {
		id := r.URL.Query().Get("order")
		if id == "" {
			return "", &lockstep.InvalidError{Field: "order", Rule: "must be set"}
		}
		return "order/" + id, nil
	}}, func(http.ResponseWriter, *http.Request) {})
	if got := status(h, request("POST", "/pay?order=7", 9)); got != http.StatusOK {
		t.Errorf("status %d, want 200", got)
	}
	if got := status(h, request("POST", "/cancel?order=7", 8)); got != http.StatusPreconditionFailed {
		t.Errorf("another path to the same order: %d, want 412", got)
	}
	if got := status(h, request("POST", "/pay", 9)); got != http.StatusBadRequest {
		t.Errorf("no order: %d, want 400", got)
	}
}

func BenchmarkMiddleware(b *testing.B) {
	m, err := New(Config{Guard: fence.NewMemory(0)})
	if err != nil {
		b.Fatal(err)
	}
	h := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r, w := request("PUT", "/x", 7), httptest.NewRecorder()
	for range b.N {
		h.ServeHTTP(w, r)
	}
}
