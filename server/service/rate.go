package service

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

const (
	// burst is how much a connection may save up while it is idle.
	burst = time.Second
	// maxPause bounds what a connection has to make good for: those above the rate are refused, and
	// what they ask for in vain is not held against them for ever.
	maxPause = time.Second
)

// A meter bounds the requests of one connection per second, with bursts of one second's worth. It is
// safe for concurrent use: a connection has many streams and calls.
type meter struct {
	perRequest time.Duration

	mu struct {
		sync.Mutex
		paidUntil time.Time // when what was taken so far has been paid for
	}
}

func newMeter(perSecond int) *meter {
	return &meter{perRequest: max(1, time.Second/time.Duration(perSecond))}
}

// take notes n requests at now, and returns how long the connection has to pause until it is within
// its bound again; zero if it is.
func (m *meter) take(now time.Time, n int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	paid := m.mu.paidUntil
	if paid.Before(now) {
		paid = now
	}
	paid = paid.Add(time.Duration(n) * m.perRequest)
	if latest := now.Add(burst + maxPause); paid.After(latest) {
		paid = latest
	}
	m.mu.paidUntil = paid
	return max(0, paid.Sub(now)-burst)
}

// A meteredAddr is the address of a client together with the meter of its connection: the one thing of a
// connection that gRPC shows to handlers.
type meteredAddr struct {
	net.Addr
	meter *meter
	conn  *conn
}

// connOf finds the connection that a call came on, or nil.
func connOf(ctx context.Context) *conn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(meteredAddr); ok {
			return a.conn
		}
	}
	return nil
}

// meterOf finds the meter of the connection that a call came on.
func (s *Service) meterOf(ctx context.Context) *meter {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(meteredAddr); ok {
			return a.meter
		}
	}
	return newMeter(s.cfg.Limits.RequestsPerSecond) // of a transport that is not ours, in a test
}

// sleep waits for d and reports false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
