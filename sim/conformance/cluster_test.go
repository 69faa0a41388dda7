package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/server"
	"github.com/lockstep-dev/lockstep/server/node"
)

// A cluster is a set of servers in this process.
type cluster struct {
	t     *testing.T
	names []string
	dirs  map[string]string
	peers map[string]string // name -> address, fixed for the lifetime of the cluster
	ports map[string]string // name -> client address

	mu      sync.Mutex
	running map[string]*running
}

type running struct {
	server *server.Server
	stop   context.CancelFunc
	done   chan error
}

// startCluster starts n servers and waits until one leads.
func startCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := &cluster{
		t:       t,
		dirs:    make(map[string]string),
		peers:   make(map[string]string),
		ports:   make(map[string]string),
		running: make(map[string]*running),
	}
	free, err := testbed.Addresses(2 * n) // a node has to come back at its own address
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		c.names = append(c.names, name)
		c.dirs[name] = filepath.Join(t.TempDir(), name)
		c.peers[name], c.ports[name] = free[2*i], free[2*i+1]
	}
	for _, name := range c.names {
		c.start(name)
	}
	t.Cleanup(func() {
		for _, name := range c.names {
			c.stop(name)
		}
	})
	c.leader()
	return c
}

func (c *cluster) start(name string) {
	c.t.Helper()
	s, err := server.New(server.Config{
		Name:           name,
		DataDir:        c.dirs[name],
		Listen:         c.ports[name],
		PeerListen:     c.peers[name],
		HTTPListen:     "127.0.0.1:0",
		InitialCluster: c.peers,
		ClusterSecret:  "a secret of the tests, longer than 32 bytes",
		Logger:         logger(),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{server: s, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	c.mu.Lock()
	c.running[name] = r
	c.mu.Unlock()
}

// stop stops a server in the planned way: it hands over and sends its clients away.
func (c *cluster) stop(name string) {
	c.t.Helper()
	c.mu.Lock()
	r := c.running[name]
	delete(c.running, name)
	c.mu.Unlock()
	if r == nil {
		return
	}
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			c.t.Errorf("%s: %v", name, err)
		}
	case <-time.After(30 * time.Second):
		c.t.Fatalf("%s did not stop", name)
	}
}

// leader waits for a leader and returns its name.
func (c *cluster) leader() string {
	c.t.Helper()
	var found string
	until(c.t, 20*time.Second, "a leader", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for name, r := range c.running {
			select {
			case err := <-r.done:
				c.t.Fatalf("%s ended: %v", name, err)
			default:
			}
			if r.server.Status().Role == node.Leader {
				found = name
				return true
			}
		}
		return false
	})
	return found
}

// restart stops all servers and starts them again on their directories.
func (c *cluster) restart() {
	for _, name := range c.names {
		c.stop(name)
	}
	for _, name := range c.names {
		c.start(name)
	}
	c.leader()
}

func (c *cluster) endpoints() []string {
	var out []string
	for _, name := range c.names {
		out = append(out, c.ports[name])
	}
	slices.Sort(out)
	return out
}

// client makes a client with its own network.
func (c *cluster) client(t *testing.T, ttl time.Duration, change ...func(*client.Config)) (*client.Client, *network) {
	t.Helper()
	n := &network{conns: make(map[*wire]bool)}
	cfg := client.Config{
		Endpoints:   c.endpoints(),
		TTL:         ttl,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(n.dial)},
		Logger:      logger(),
	}
	for _, f := range change {
		f(&cfg)
	}
	k, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		k.Close(ctx)
	})
	return k, n
}

func (c *cluster) admin(t *testing.T) *client.Admin {
	t.Helper()
	a, err := client.NewAdmin(client.Config{Endpoints: c.endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// until waits until holds returns true.
func until(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("no %s within %v", what, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// logger is silent unless LOCKSTEP_TEST_LOG is set.
func logger() *slog.Logger {
	if os.Getenv("LOCKSTEP_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A network is between one client and the cluster. While it is cut, what either side sends vanishes
// and no connection ends.
type network struct {
	mu    sync.Mutex
	cut   bool
	conns map[*wire]bool
	// swallow, if set, makes what the cluster sends vanish while what the client sends arrives.
	swallow bool
}

func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	if n.isCut() {
		<-ctx.Done() // a SYN without an answer
		return nil, ctx.Err()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn, network: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[w] = true
	return w, nil
}

func (n *network) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

func (n *network) isDeaf() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut || n.swallow
}

func (n *network) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	if !cut {
		n.breakLocked() // what was lost on these stays lost
	}
}

func (n *network) setDeaf(deaf bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.swallow = deaf
}

// reset breaks all connections.
func (n *network) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.breakLocked()
}

func (n *network) breakLocked() {
	for w := range n.conns {
		w.Conn.Close()
		delete(n.conns, w)
	}
}

type wire struct {
	net.Conn
	network *network
}

func (w *wire) Write(b []byte) (int, error) {
	if w.network.isCut() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		if err != nil || !w.network.isDeaf() {
			return n, err
		}
	}
}

func (w *wire) Close() error {
	w.network.mu.Lock()
	delete(w.network.conns, w)
	w.network.mu.Unlock()
	if err := w.Conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
