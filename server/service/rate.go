package service

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

const (
	// burst is how much unused rate a connection can accumulate while idle.
	burst = time.Second
	// maxPause bounds a connection's debt: requests above the rate are refused, and refused
	// requests must not count against it forever.
	maxPause = time.Second
)

// A meter limits one connection's requests per second, with bursts of one second's worth. It is
// safe for concurrent use: a connection has many streams and calls.
type meter struct {
	perRequest time.Duration

	mu struct {
		sync.Mutex
		paidUntil time.Time // when what was taken so far will have been paid for
	}
}

func newMeter(perSecond int) *meter {
	return &meter{perRequest: max(1, time.Second/time.Duration(perSecond))}
}

// take records n requests at now, and returns how long the connection has to pause to be within its
// limit again; zero if it is.
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

// A meteredAddr is a client's address together with the meter of its connection: the address is the
// only part of a connection that gRPC shows to handlers.
type meteredAddr struct {
	net.Addr
	meter *meter
	conn  *conn
}

// connOf returns the connection that a call came on, or nil.
func connOf(ctx context.Context) *conn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(meteredAddr); ok {
			return a.conn
		}
	}
	return nil
}

// meterOf returns the meter of the connection that a call came on.
func (s *Service) meterOf(ctx context.Context) *meter {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(meteredAddr); ok {
			return a.meter
		}
	}
	return newMeter(s.cfg.Limits.RequestsPerSecond) // for a transport that is not ours, in a test
}

// sleep waits for d, and returns false if ctx ended first.
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
