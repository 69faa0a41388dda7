package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Proxy stands between clients and one server, or with [NewCable] between one client and all
// servers. While it is cut, connections stay open and nothing gets through, as if a cable were
// pulled. It is safe for concurrent use.
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

// NewCable starts a proxy that acts as the network of one client, until Close: while it is cut, the
// client reaches nothing that it dialed with [DialThrough].
func NewCable() (*Proxy, error) { return NewProxy("") }

// DialThrough connects to a server through the cable that listens at the given address. If the
// server cannot be reached, the connection is closed.
func DialThrough(ctx context.Context, cable, server string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", cable)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(conn, server); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
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

// Address is where clients connect.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut lets nothing through until Heal.
func (p *Proxy) Cut() { p.set(true) }

// Heal lets new connections through. Connections that were cut are closed: what was lost on them
// stays lost.
func (p *Proxy) Heal() {
	p.set(false)
	p.Break()
}

func (p *Proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.cut = cut
}

// Break closes all current connections.
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
	target, err := p.targetOf(down)
	if err != nil {
		return
	}
	up, err := net.DialTimeout("tcp", target, time.Second)
	if err != nil {
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

// targetOf returns where a connection goes. On a cable, the first line names it; that line is read
// byte by byte because the rest is for the server.
func (p *Proxy) targetOf(down net.Conn) (string, error) {
	if p.target != "" {
		return p.target, nil
	}
	if err := down.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	var line []byte
	for one := []byte{0}; len(line) < maxTargetBytes; line = append(line, one[0]) {
		if _, err := io.ReadFull(down, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return string(line), down.SetReadDeadline(time.Time{})
		}
	}
	return "", errors.New("no address was sent")
}

// maxTargetBytes is longer than any host name with a port.
const maxTargetBytes = 300

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

// pump copies until one side ends, then closes both. While the proxy is cut, incoming data is
// discarded.
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
