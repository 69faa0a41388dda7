package httpfence

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-dev/lockstep"
)

// An inflight tracks the requests between their check and the end of their handler.
type inflight struct {
	limit int // per resource
	mu    struct {
		sync.Mutex
		lines map[string]*line // only resources with requests
	}
}

// A line is the requests on one resource.
type line struct {
	tokens  []lockstep.Token // one per request, unordered
	changed chan struct{}    // closed when a request leaves
}

func newInflight(limit int) *inflight {
	f := &inflight{limit: limit}
	f.mu.lines = map[string]*line{}
	return f
}

// join adds a request. It comes before the check: this way, an older request that passes its check
// before a newer one raises the mark is in the line when the newer one looks.
func (f *inflight) join(resource string, token lockstep.Token) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.mu.lines[resource]
	if l == nil {
		l = &line{changed: make(chan struct{})}
		f.mu.lines[resource] = l
	}
	if len(l.tokens) >= f.limit {
		return fmt.Errorf("%w: %d requests are at the resource", lockstep.ErrQuota, f.limit)
	}
	l.tokens = append(l.tokens, token)
	return nil
}

// leave removes the request and wakes the waiters.
func (f *inflight) leave(resource string, token lockstep.Token) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.mu.lines[resource]
	at := slices.Index(l.tokens, token)
	l.tokens = slices.Delete(l.tokens, at, at+1)
	close(l.changed)
	l.changed = make(chan struct{})
	if len(l.tokens) == 0 {
		delete(f.mu.lines, resource)
	}
}

// awaitOlder returns when no request with a smaller token is left, or ctx is done. Requests wait
// only for smaller tokens, so there is no circular wait.
func (f *inflight) awaitOlder(ctx context.Context, resource string, token lockstep.Token) error {
	for {
		changed := f.older(resource, token)
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// older returns nil if there is no older request, or else a channel that is closed when a request
// leaves.
func (f *inflight) older(resource string, token lockstep.Token) (changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.mu.lines[resource]
	if slices.Min(l.tokens) >= token {
		return nil
	}
	return l.changed
}
