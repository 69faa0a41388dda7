package testbed

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// A Proxy stands between a client and one server. While it is cut, connections
// stay open and nothing comes through, as when a cable is pulled; it is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	group    sync.WaitGroup

	mu struct {
		sync.Mutex
		cut    bool
		closed bool
		conns  map[net.Conn]struct{}
	}
}

// NewProxy starts a proxy in front of the server at target, until Close.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target}
	p.mu.conns = map[net.Conn]struct{}{}
	p.group.Go(p.accept)
	return p, nil
}

// Address is where clients connect to.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut lets nothing through from now on.
func (p *Proxy) Cut() { p.set(true) }

// Heal lets new connections through. Those that were cut are closed: what was lost on them stays lost.
func (p *Proxy) Heal() {
	p.set(false)
	p.Break()
}

func (p *Proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.cut = cut
}

// Break closes all present connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.mu.conns {
		conn.Close()
	}
}

// Close ends the proxy with all its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Break()
	p.group.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(conn) })
	}
}

func (p *Proxy) serve(down net.Conn) {
	defer p.forget(down)
	up, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		down.Close()
		return
	}
	defer p.forget(up)
	if !p.remember(down) || !p.remember(up) {
		down.Close()
		up.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(up, down) })
	both.Go(func() { p.pump(down, up) })
	both.Wait()
}

func (p *Proxy) remember(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.conns[conn] = struct{}{}
	return !p.mu.closed
}

func (p *Proxy) forget(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.conns, conn)
	conn.Close()
}

// pump copies until one side ends, then closes both. While the proxy is cut what arrives is thrown away.
func (p *Proxy) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if p.isCut() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.cut
}
