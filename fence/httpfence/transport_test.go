package httpfence

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/memlock"
)

// bodyWatch records that it was closed.
type bodyWatch struct {
	io.Reader
	closed bool
}

func (b *bodyWatch) Close() error { b.closed = true; return nil }

func source(t *testing.T, locker lockstep.Locker, name string) fence.Source {
	t.Helper()
	s, err := fence.For(locker, "test", name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTransportSendsTheGrantWhileTheLockIsHeld(t *testing.T) {
	var seen []http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header)
	}))
	defer server.Close()
	locker := memlock.New()
	lock, err := locker.Acquire(t.Context(), "orders/42")
	if err != nil {
		t.Fatal(err)
	}
	transport, err := NewTransport(nil, source(t, locker, "orders/42"), lock)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Transport: transport}
	r, _ := http.NewRequest("GET", server.URL, nil)
	resp, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if g, err := ReadGrant(seen[0]); err != nil || g != (fence.Grant{Backend: "memory:test", Lock: "orders/42", Token: lock.Token()}) {
		t.Errorf("sent %+v, %v", g, err)
	}
	if seen[0].Get("Cache-Control") != "no-cache" || len(r.Header) != 0 {
		t.Errorf("sent %v for a request with headers %v", seen[0], r.Header)
	}

	locker.Expire()
	body := &bodyWatch{Reader: http.NoBody}
	r, _ = http.NewRequest("PUT", server.URL, body)
	if _, err := web.Do(r); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("after the loss: %v, want ErrLost", err)
	}
	if len(seen) != 1 || !body.closed {
		t.Errorf("%d requests arrived, want 1; body closed: %v", len(seen), body.closed)
	}
}

func TestTransportNeedsALockOfItsSource(t *testing.T) {
	locker := memlock.New()
	lock, err := locker.Acquire(context.Background(), "orders/43")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewTransport(nil, source(t, locker, "orders/42"), lock); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("err = %v, want ErrInvalid", err)
	}
}
