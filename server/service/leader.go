package service

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep/server/node"
)

const (
	// leaderPatience is how long a client is kept waiting when no leader is known, before it is
	// told so. A planned handover takes some milliseconds: the client then learns where to go
	// instead of trying nodes with growing pauses. Waiting costs nothing, since no other node could
	// serve it.
	leaderPatience = 250 * time.Millisecond
	// leaderEvery is how often the node is checked while somebody waits, once for all of them.
	leaderEvery = 5 * time.Millisecond
)

// A herald notifies waiting callers when a leader is known.
type herald struct {
	hurry chan struct{} // holds one; somebody waits

	mu struct {
		sync.Mutex
		known chan struct{} // closed at the next announcement
	}
}

func newHerald() *herald {
	h := &herald{hurry: make(chan struct{}, 1)}
	h.mu.known = make(chan struct{})
	return h
}

// next returns a channel that is closed at the next announcement.
func (h *herald) next() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.known
}

func (h *herald) announce() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.mu.known)
	h.mu.known = make(chan struct{})
}

// wait requests attention and waits for the next announcement.
func (h *herald) wait(ctx context.Context, known, stopping <-chan struct{}, timeout <-chan time.Time) (announced bool) {
	select {
	case h.hurry <- struct{}{}:
	default: // it is being checked already
	}
	select {
	case <-known:
		return true
	case <-ctx.Done():
	case <-stopping:
	case <-timeout:
	}
	return false
}

// settled reports whether it is known who serves: this node, or another one that it can name.
func settled(st node.Status) bool {
	if st.Role == node.Leader {
		return st.Serving
	}
	return st.Leader != 0 && st.Leader != st.ID
}

// settle returns the node's status once it is known who serves, or after leaderPatience.
func (s *Service) settle(ctx context.Context) node.Status {
	timeout := time.NewTimer(leaderPatience)
	defer timeout.Stop()
	for {
		known := s.herald.next()
		st := s.cfg.Node.Status()
		if settled(st) || !s.herald.wait(ctx, known, s.stopping, timeout.C) {
			return st
		}
	}
}

// watchFor polls the node until it is known who serves, on behalf of the waiting callers.
func (s *Service) watchFor(ctx context.Context) {
	tick := time.NewTicker(leaderEvery)
	defer tick.Stop()
	for range leaderPatience / leaderEvery {
		if settled(s.cfg.Node.Status()) {
			s.herald.announce()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
