package service

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A gate is a listener for connections that a test makes up.
type gate struct{ next []any } // *end or error

func (g *gate) Accept() (net.Conn, error) {
	if len(g.next) == 0 {
		return nil, net.ErrClosed
	}
	one := g.next[0]
	g.next = g.next[1:]
	if err, ok := one.(error); ok {
		return nil, err
	}
	return one.(*end), nil
}
func (g *gate) Close() error   { return nil }
func (g *gate) Addr() net.Addr { return &net.TCPAddr{} }

// An end is a connection from an address.
type end struct {
	net.Conn
	from   string
	closed bool
}

func (e *end) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(e.from))
}
func (e *end) Close() error { e.closed = true; return nil }

func ends(from ...string) (list []*end) {
	for _, f := range from {
		list = append(list, &end{from: f})
	}
	return list
}

// portOf makes a port with these connections and errors already waiting.
func portOf(b Bounds, line ...any) *Port {
	return NewPort(&gate{next: line}, b, slog.New(slog.DiscardHandler))
}

func accepted(t *testing.T, p *Port) *conn {
	t.Helper()
	c, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*conn)
}

func TestAFullPortGivesANewcomerThePlaceOfTheLongestIdle(t *testing.T) {
	e := ends("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1")
	p := portOf(Bounds{Connections: 3}, e[0], e[1], e[2], e[3], e[4])
	first, second, third := accepted(t, p), accepted(t, p), accepted(t, p)
	first.use(1) // a session
	second.use(1)
	second.use(-1) // had a call just now, so the third has been idle for longer
	accepted(t, p)
	if e[0].closed || e[1].closed || !e[2].closed || e[3].closed {
		t.Errorf("closed: %v %v %v %v, want the third", e[0].closed, e[1].closed, e[2].closed, e[3].closed)
	}
	accepted(t, p)
	if e[0].closed || !e[1].closed || e[3].closed {
		t.Errorf("closed: %v %v, want the second", e[0].closed, e[1].closed)
	}
	_ = third.Close() // has already lost its place
	third.use(1)
	third.use(-1)
	if c := p.Counts(); c.Open != 3 || c.ClosedIdle != 2 || c.Full != 0 {
		t.Errorf("counts: %+v", c)
	}
}

func TestAPortFullOfCallsRefusesANewcomer(t *testing.T) {
	e := ends("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1")
	p := portOf(Bounds{Connections: 2}, e[0], e[1], e[2], e[3])
	first := accepted(t, p)
	first.use(1)
	accepted(t, p).use(2)
	// Both are refused, and nothing more is waiting.
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("err = %v", err)
	}
	if !e[2].closed || !e[3].closed || e[0].closed || e[1].closed {
		t.Error("not the newcomers were closed")
	}
	if c := p.Counts(); c.Full != 2 || c.Open != 2 || c.Limit != 2 {
		t.Errorf("counts: %+v", c)
	}
	_ = first.Close()
	_ = first.Close()
	if c := p.Counts(); c.Open != 1 {
		t.Errorf("%d open after one was closed twice", c.Open)
	}
}

func TestOneAddressHasHalfOfThePlaces(t *testing.T) {
	for name, from := range map[string][]string{
		"IPv4":         {"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.2:1"},
		"mapped IPv4":  {"10.0.0.1:1", "[::ffff:10.0.0.1]:2", "10.0.0.1:3", "10.0.0.2:1"},
		"IPv6 network": {"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::ffff:3]:1", "[2001:db8:0:1::1]:1"},
	} {
		e := ends(from...)
		p := portOf(Bounds{Connections: 4}, e[0], e[1], e[2], e[3])
		accepted(t, p).use(1)
		second := accepted(t, p)
		second.use(1)
		if accepted(t, p).RemoteAddr().String() != e[3].RemoteAddr().String() || !e[2].closed {
			t.Errorf("%s: the third connection of an address was not refused", name)
		}
		if c := p.Counts(); c.PerAddress != 1 || c.Open != 3 {
			t.Errorf("%s: counts %+v", name, c)
		}
		_ = second.Close()
		if n := p.mu.from[addressOf(e[0].RemoteAddr())].open; n != 1 {
			t.Errorf("%s: %d connections are counted, want 1", name, n)
		}
	}
	e := ends("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3")
	p := portOf(Bounds{Connections: 4, PerAddress: 3}, e[0], e[1], e[2])
	for range e {
		accepted(t, p)
	}
}

func TestAnAddressGivesItsOwnIdlePlacesToItsNewcomers(t *testing.T) {
	e := ends("10.0.0.2:1", "10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4")
	p := portOf(Bounds{Connections: 6, PerAddress: 2}, e[0], e[1], e[2], e[3], e[4])
	accepted(t, p) // another's, idle for longer
	accepted(t, p).use(1)
	accepted(t, p)
	accepted(t, p).use(1)
	if e[0].closed || e[1].closed || !e[2].closed || e[3].closed {
		t.Errorf("closed: %v %v %v %v, want its own idle one", e[0].closed, e[1].closed, e[2].closed, e[3].closed)
	}
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) || !e[4].closed || e[0].closed {
		t.Errorf("with no idle one: %v, closed %v %v", err, e[4].closed, e[0].closed)
	}
	if c := p.Counts(); c.ClosedIdle != 1 || c.PerAddress != 1 || c.Open != 3 {
		t.Errorf("counts: %+v", c)
	}
	one := portOf(Bounds{Connections: 1}, e[0], e[1])
	accepted(t, one)
	accepted(t, one) // from another address, whose only connection it replaces
	if c := one.Counts(); c.Open != 1 || len(one.mu.from) != 1 {
		t.Errorf("counts: %+v, %d addresses", c, len(one.mu.from))
	}
}

func TestAHTTPConnectionIsIdleBetweenRequests(t *testing.T) {
	e := ends("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
	p := portOf(Bounds{Connections: 2}, e[0], e[1], e[2])
	first, second := accepted(t, p), accepted(t, p)
	p.Track(first, http.StateActive)
	p.Track(second, http.StateActive)
	p.Track(second, http.StateIdle)
	accepted(t, p)
	if e[0].closed || !e[1].closed {
		t.Error("the one with a request was closed, or none")
	}
	p.Track(second, http.StateClosed)
	p.Track(second, http.StateActive) // it is gone
	p.Track(&end{from: "10.0.0.9:1"}, http.StateActive)
	if p.mu.idle.Len() != 1 {
		t.Errorf("%d idle, want the third alone", p.mu.idle.Len())
	}
}

func TestAShortageOfDescriptorsIsCountedAndLeftToTheServer(t *testing.T) {
	e := ends("10.0.0.1:1")
	p := portOf(Bounds{Connections: 2}, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}, errors.New("other"), e[0])
	_, err := p.Accept()
	if temporary, ok := err.(interface{ Temporary() bool }); !ok || !temporary.Temporary() {
		t.Errorf("%v is not temporary: the servers would end", err)
	}
	if _, err := p.Accept(); err == nil {
		t.Error("no error")
	}
	accepted(t, p)
	if c := p.Counts(); c.NoDescriptor != 1 || c.Open != 1 {
		t.Errorf("counts: %+v", c)
	}
}

func TestPlacesAreTakenAndGivenBackFromManyGoroutines(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := NewPort(l, Bounds{Connections: 4, PerAddress: 4}, slog.New(slog.DiscardHandler))
	go func() {
		for {
			c, err := p.Accept()
			if err != nil {
				return
			}
			c.(*conn).use(1)
			go func() {
				_, _ = io.Copy(io.Discard, c) // until the client goes away, or it is closed
				c.(*conn).use(-1)
				_ = c.Close()
			}()
		}
	}()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
					_ = c.Close()
				}
			}
		})
	}
	all.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for p.Counts().Open > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.open != 0 || len(p.mu.from) != 0 || p.mu.idle.Len() != 0 {
		t.Errorf("%d open, %d addresses, %d idle after all have gone", p.mu.open, len(p.mu.from), p.mu.idle.Len())
	}
}
