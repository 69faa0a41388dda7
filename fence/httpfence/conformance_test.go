//go:build unix

package httpfence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fence/filefence"
	"github.com/lockstep-dev/lockstep/fencetest"
)

// diesHeader makes the handler die before it writes.
const diesHeader = "X-Dies"

// A shelf is a handler that keeps values by path. It relies on the guard to separate writers: it
// writes in two halves, with a pause in between.
type shelf struct {
	mu     sync.Mutex
	values map[string][]byte
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Header.Get(diesHeader) != "" {
		panic(http.ErrAbortHandler)
	}
	switch r.Method {
	case http.MethodGet:
		s.serve(w, r)
	case http.MethodDelete:
		s.put(r.URL.Path, nil)
	default:
		s.put(r.URL.Path, body)
	}
}

func (s *shelf) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	value := s.values[r.URL.Path]
	s.mu.Unlock()
	if value == nil {
		http.NotFound(w, r)
		return
	}
	w.Write(value[1:])
}

// put stores a value, with a leading byte so that empty differs from absent.
func (s *shelf) put(path string, body []byte) {
	value := append([]byte{'v'}, body...)
	if body == nil {
		value = nil
	}
	runtime.Gosched()
	s.mu.Lock()
	s.values[path] = value
	s.mu.Unlock()
}

// A client is a [fencetest.Store] over HTTP.
type client struct {
	url  string
	http *http.Client
	deaf *atomic.Bool // loses the next reply
}

func (c *client) do(ctx context.Context, method string, g *fence.Grant, body []byte, header ...string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if g != nil {
		SetGrant(r.Header, *g)
	}
	for _, name := range header {
		r.Header.Set(name, "1")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if c.deaf.Swap(false) {
		return nil, errors.New("the reply is lost")
	}
	if err := Refusal(resp); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, fs.ErrNotExist
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return text, nil
}

func (c *client) Enter(ctx context.Context, g fence.Grant) error {
	if _, err := c.do(ctx, http.MethodGet, &g, nil); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *client) Read(ctx context.Context) ([]byte, error) {
	return c.do(ctx, http.MethodGet, nil, nil)
}

func (c *client) Write(ctx context.Context, g fence.Grant, value []byte) error {
	_, err := c.do(ctx, http.MethodPut, orNone(g), value)
	return err
}

func (c *client) Delete(ctx context.Context, g fence.Grant) error {
	_, err := c.do(ctx, http.MethodDelete, orNone(g), nil)
	return err
}

// orNone sends no headers for the grant of a writer without a lock.
func orNone(g fence.Grant) *fence.Grant {
	if g == (fence.Grant{}) {
		return nil
	}
	return &g
}

// A onceClient can also write once.
type onceClient struct{ *client }

func (c onceClient) WriteOnce(ctx context.Context, g fence.Grant, value []byte) error {
	_, err := c.do(ctx, http.MethodPost, orNone(g), value)
	return err
}

func byMethodOrOnce(r *http.Request) fence.Step {
	if r.Method == http.MethodPost {
		return fence.WriteOnce
	}
	return ByMethod(r)
}

// A site is a server with guarded values that can be restarted.
type site struct {
	shelf  *shelf
	server *httptest.Server
	guard  func() fence.Guard
}

func newSite(t *testing.T, guard func() fence.Guard) *site {
	s := &site{shelf: &shelf{values: map[string][]byte{}}, guard: guard}
	s.start(t)
	t.Cleanup(func() { s.server.Close() })
	return s
}

func (s *site) start(t *testing.T) {
	m, err := New(Config{Guard: s.guard(), Step: byMethodOrOnce, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s.server = httptest.NewServer(m.Wrap(s.shelf))
}

func (s *site) restart(t *testing.T) {
	s.server.Close()
	s.start(t)
}

func (s *site) client(resource string) *client {
	return &client{url: s.server.URL + "/" + resource, http: s.server.Client(), deaf: new(atomic.Bool)}
}

func die(t *testing.T, s fencetest.Store, g fence.Grant, value []byte) {
	c, ok := s.(*client)
	if !ok {
		c = s.(onceClient).client
	}
	if _, err := c.do(context.Background(), http.MethodPut, &g, value, diesHeader); err == nil {
		t.Error("the handler did not die")
	}
}

func TestConformanceWithMarksInMemory(t *testing.T) {
	s := newSite(t, func() fence.Guard { return fence.NewMemory(0) })
	fencetest.Run(t, fencetest.Guard{
		Open:      func(t *testing.T, resource string) fencetest.Store { return onceClient{s.client(resource)} },
		LoseReply: func(_ *testing.T, c fencetest.Store) { c.(onceClient).deaf.Store(true) },
	})
}

// TestConformanceWithDyingHandlers leaves out writing once: a dying handler was already admitted,
// and that uses up its one write.
func TestConformanceWithDyingHandlers(t *testing.T) {
	s := newSite(t, func() fence.Guard { return fence.NewMemory(0) })
	fencetest.Run(t, fencetest.Guard{
		Open:    func(t *testing.T, resource string) fencetest.Store { return s.client(resource) },
		Crashes: []fencetest.Crash{{Moment: "admitted, nothing written", Write: die}},
	})
}

func TestConformanceWithMarksOnDisk(t *testing.T) {
	dir := t.TempDir()
	s := newSite(t, func() fence.Guard {
		guard, err := filefence.OpenDir(dir, filefence.Config{Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return guard
	})
	fencetest.Run(t, fencetest.Guard{
		Open:    func(t *testing.T, resource string) fencetest.Store { return onceClient{s.client(resource)} },
		Restart: s.restart,
		Rounds:  10,
	})
}
