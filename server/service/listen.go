package service

import (
	"container/list"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds limit the connections of a port.
type Bounds struct {
	// Connections is the maximum number at one time.
	Connections int
	// PerAddress limits the connections of one IPv4 address or one IPv6 /64 network. Default: half
	// of Connections, so that one address leaves room for others, and an office behind one address
	// has as much as all others.
	PerAddress int
}

func (b Bounds) withDefaults() Bounds {
	fallback(&b.PerAddress, max(1, b.Connections/2))
	b.PerAddress = min(b.PerAddress, b.Connections)
	return b
}

// A Port is a listener with bounds, so that connections cannot use up the process's file
// descriptors, which the log and the peers need too. Where all places are taken, or all of an
// address, the connection closes that has gone longest without a call and has no unread answer, of
// all or of that address, and the newcomer only if there is none.
type Port struct {
	net.Listener
	bounds  Bounds
	rate    int                       // requests per second of one connection; 0: not limited
	open    func(end func()) *account // for a new connection; nil: unread bytes are not counted
	trouble *quiet

	mu struct {
		sync.Mutex
		open  int
		from  map[string]*address
		idle  *list.List // of *conn without a call, longest idle first
		count PortCounts
	}
}

// An address has the connections of one client address.
type address struct {
	open   int
	idle   *list.List   // as of the port
	unread atomic.Int64 // bytes; see account
}

// PortCounts has counters since the port was created.
type PortCounts struct {
	Open  int // now
	Limit int
	// Full counts connections refused because all places were taken and none was idle, PerAddress
	// those refused because all places of one address were, and NoDescriptor how often a connection
	// had to wait for a file descriptor.
	Full, PerAddress, NoDescriptor uint64
	// ClosedIdle counts idle connections that were closed to make room.
	ClosedIdle uint64
}

// NewPort makes a port from a listener. Refusals are logged, at most one line a second of each
// kind.
func NewPort(l net.Listener, b Bounds, log *slog.Logger) *Port {
	return newPort(l, b, 0, newQuiet(log))
}

func newPort(l net.Listener, b Bounds, rate int, trouble *quiet) *Port {
	p := &Port{Listener: l, bounds: b.withDefaults(), rate: rate, trouble: trouble}
	p.mu.from = make(map[string]*address)
	p.mu.idle = list.New()
	return p
}

// Counts returns the port's counters.
func (p *Port) Counts() PortCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.mu.count
	c.Open, c.Limit = p.mu.open, p.bounds.Connections
	return c
}

// Accept returns the next connection within the bounds. An error may be temporary: gRPC and
// net/http then pause.
func (p *Port) Accept() (net.Conn, error) {
	for {
		raw, err := p.Listener.Accept()
		if err != nil {
			p.failed(err)
			return nil, err
		}
		c := p.wrap(raw)
		full, victim := p.admit(c)
		if victim != nil {
			p.trouble.warn("too many connections: closed the longest idle one", slog.Int("limit", p.bounds.Connections),
				slog.String("closed", victim.RemoteAddr().String()))
			_ = victim.Conn.Close() // it has no calls
		}
		if full == "" {
			return c, nil
		}
		p.trouble.warn("too many connections: closed a new one", slog.String("limit", full), slog.String("from", raw.RemoteAddr().String()))
		_ = raw.Close() // it was never used: nothing can be lost
	}
}

// failed records that a connection could not be accepted for lack of a descriptor.
func (p *Port) failed(err error) {
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
		return
	}
	p.mu.Lock()
	p.mu.count.NoDescriptor++
	p.mu.Unlock()
	p.trouble.warn("no file descriptor left for a connection", slog.Any("error", err))
}

func (p *Port) wrap(raw net.Conn) *conn {
	c := &conn{Conn: raw, port: p, remote: raw.RemoteAddr(), from: addressOf(raw.RemoteAddr())}
	if p.rate > 0 {
		if p.open != nil {
			c.account = p.open(func() { _ = c.Close() }) // nobody reads what is left
		}
		c.remote = meteredAddr{Addr: c.remote, meter: newMeter(p.rate), conn: c}
	}
	return c
}

// addressOf returns the key under which connections count as one address; see network.
func addressOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		host = a.String()
	}
	return network(host)
}

// admit takes a place for c, or returns which bound is reached. If victim is set, it has lost its
// place to c and must be closed.
func (p *Port) admit(c *conn) (full string, victim *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.mu.from[c.from]
	if a == nil {
		a = &address{idle: list.New()}
	}
	switch {
	case a.open >= p.bounds.PerAddress:
		if victim = longestIdle(a.idle); victim == nil {
			p.mu.count.PerAddress++
			return "per address", nil
		}
	case p.mu.open >= p.bounds.Connections:
		if victim = longestIdle(p.mu.idle); victim == nil {
			p.mu.count.Full++
			return "total", nil
		}
	}
	if victim != nil {
		p.leaveLocked(victim)
		p.mu.count.ClosedIdle++
	}
	if c.account != nil {
		c.account.address = &a.unread
	}
	p.mu.from[c.from] = a // the victim may have been its last
	p.mu.open++
	a.open++
	p.restLocked(c, true)
	return "", victim
}

// longestIdle is the connection that has gone longest without a call and whose client has read all
// answers, or nil.
func longestIdle(idle *list.List) *conn {
	for e := idle.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*conn); c.account.empty() {
			return c
		}
	}
	return nil
}

// leaveLocked gives the place of a connection back, once. p.mu must be held.
func (p *Port) leaveLocked(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	p.restLocked(c, false)
	p.mu.open--
	a := p.mu.from[c.from]
	if a.open--; a.open == 0 {
		delete(p.mu.from, c.from)
	}
}

// restLocked adds a connection to the idle ones, as the most recently used, or removes it from
// them. p.mu must be held.
func (p *Port) restLocked(c *conn, idle bool) {
	a := p.mu.from[c.from]
	switch {
	case idle && c.idle == nil:
		c.idle, c.idleOfAddress = p.mu.idle.PushBack(c), a.idle.PushBack(c)
	case !idle && c.idle != nil:
		p.mu.idle.Remove(c.idle)
		a.idle.Remove(c.idleOfAddress)
		c.idle, c.idleOfAddress = nil, nil
	}
}

// Track is a ConnState hook: it follows what a [net/http.Server] does with one of the port's
// connections.
func (p *Port) Track(c net.Conn, state http.ConnState) {
	if c, ok := c.(*conn); ok && state != http.StateClosed {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !c.gone {
			p.restLocked(c, state != http.StateActive)
		}
	}
}

// A conn gives its place back when it is closed.
type conn struct {
	net.Conn
	port   *Port
	remote net.Addr
	from   string

	account *account // nil: unread bytes are not counted

	// Guarded by port.mu.
	calls               int
	idle, idleOfAddress *list.Element // nil: it has a call, or is gone
	gone                bool
}

// RemoteAddr returns the client's address, together with its meter.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// Close closes the connection.
func (c *conn) Close() error {
	c.port.mu.Lock()
	c.port.leaveLocked(c)
	c.port.mu.Unlock()
	c.account.close()
	return c.Conn.Close()
}

// Write sends to a client that must accept at least something within Limits.Untaken.
func (c *conn) Write(b []byte) (int, error) {
	if c.account != nil {
		// A closed connection is noticed on write.
		_ = c.SetWriteDeadline(time.Now().Add(c.account.ledger.timeout))
	}
	return c.Conn.Write(b)
}

// use records that n calls have begun or, if n is negative, ended. A nil conn has no bounds.
func (c *conn) use(n int) {
	if c == nil {
		return
	}
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	c.calls += n
	if !c.gone {
		c.port.restLocked(c, c.calls == 0)
	}
}
