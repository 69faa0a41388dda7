package service

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
)

// A limitedListener closes connections above a limit at once, so that they cannot use up the
// process's file descriptors, which the log and the peers need too.
type limitedListener struct {
	net.Listener
	limit   int64
	rate    int // requests per second of one connection; 0: not metered
	open    atomic.Int64
	trouble *quiet
}

// LimitConnections makes a listener that has at most limit connections at one time. One more is closed at
// once, and at most one of those a second is logged.
func LimitConnections(l net.Listener, limit int, log *slog.Logger) net.Listener {
	return &limitedListener{Listener: l, limit: int64(limit), trouble: newQuiet(log)}
}

// limitClients makes the listener of the clients.
func limitClients(l net.Listener, limits Limits, trouble *quiet) net.Listener {
	return &limitedListener{Listener: l, limit: int64(limits.Connections), rate: limits.RequestsPerSecond, trouble: trouble}
}

// Accept returns the next connection within the limit.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.limit {
			return l.wrap(c), nil
		}
		l.open.Add(-1)
		l.trouble.warn("too many connections, one was closed", slog.Int64("limit", l.limit), slog.String("from", c.RemoteAddr().String()))
		_ = c.Close() // it was never used: nothing can be lost
	}
}

func (l *limitedListener) wrap(c net.Conn) *countedConn {
	counted := &countedConn{Conn: c, listener: l, remote: c.RemoteAddr()}
	if l.rate > 0 {
		counted.remote = meteredAddr{counted.remote, newMeter(l.rate)}
	}
	return counted
}

// A countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	listener *limitedListener
	remote   net.Addr
	once     sync.Once
}

// RemoteAddr is the client's address, with its meter.
func (c *countedConn) RemoteAddr() net.Addr { return c.remote }

// Close closes the connection.
func (c *countedConn) Close() error {
	c.once.Do(func() { c.listener.open.Add(-1) })
	return c.Conn.Close()
}
