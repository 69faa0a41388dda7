package redisfence_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redisfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startServer(t testing.TB, c redisserver.Config) *redisserver.Server {
	t.Helper()
	c.Dir = t.TempDir()
	s, err := redisserver.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// A mishap befalls the connection that carries the next script.
type mishap int

const (
	loseReply mishap = iota + 1 // the server has executed it, but the connection is gone; a new one works
	dieBefore                   // the process dies before it sends the script
	dieAfter                    // the process dies after the server has executed it
)

var errDied = errors.New("the process is dead")

// A line is the network of one client.
type line struct {
	mu   sync.Mutex
	next mishap
	dead bool
	lost int // replies
}

func (l *line) meet(m mishap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = m
}

// repliesLost is how many replies the line has lost.
func (l *line) repliesLost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, errDied
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, line: l}, nil
}

// A conn applies the mishaps of its line.
type conn struct {
	net.Conn
	line *line
	met  mishap
}

func (c *conn) Write(b []byte) (int, error) {
	c.line.mu.Lock()
	defer c.line.mu.Unlock()
	if c.line.dead {
		return 0, errDied
	}
	if c.line.next != 0 && bytes.Contains(bytes.ToLower(b), []byte("\r\neval")) {
		c.met, c.line.next = c.line.next, 0
		if c.met == dieBefore {
			c.line.dead = true
			return 0, errDied
		}
	}
	return c.Conn.Write(b)
}

// Read waits for the reply in any case, so that the server has executed the request.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.line.mu.Lock()
	defer c.line.mu.Unlock()
	switch {
	case c.line.dead:
		return 0, errDied
	case c.met != 0 && err == nil:
		c.line.lost++
		c.line.dead = c.met == dieAfter
		c.Conn.Close()
		return 0, errDied
	}
	return n, err
}

// A resource is one process's view of a resource.
type resource struct {
	*redisfence.Guard
	name string
	line *line
}

// open creates a Guard with its own client. retries is how often go-redis retries; -1 is never.
func open(t testing.TB, address, name string, retries int) *resource {
	t.Helper()
	l := &line{}
	rdb := redis.NewClient(&redis.Options{Addr: address, Dialer: l.dial, MaxRetries: retries, ReadTimeout: 30 * time.Second})
	t.Cleanup(func() { rdb.Close() })
	return &resource{Guard: newGuard(t, rdb, redisfence.Config{}), name: name, line: l}
}

func newGuard(t testing.TB, rdb redis.UniversalClient, cfg redisfence.Config) *redisfence.Guard {
	t.Helper()
	g, err := redisfence.New(rdb, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func connect(t testing.TB, address string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func (r *resource) Enter(ctx context.Context, g fence.Grant) error {
	return r.Guard.Enter(ctx, r.name, g)
}

func (r *resource) Read(ctx context.Context) ([]byte, error) { return r.Guard.Read(ctx, r.name) }

func (r *resource) Write(ctx context.Context, g fence.Grant, value []byte) error {
	return r.Guard.Write(ctx, r.name, g, value)
}

func (r *resource) WriteOnce(ctx context.Context, g fence.Grant, value []byte) error {
	return r.Guard.WriteOnce(ctx, r.name, g, value)
}

func (r *resource) Delete(ctx context.Context, g fence.Grant) error {
	return r.Guard.Delete(ctx, r.name, g)
}

func grant(token lockstep.Token) fence.Grant {
	return fence.Grant{Backend: "etcd:test", Lock: "reports", Token: token}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
