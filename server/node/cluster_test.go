package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// patience is how long tests wait for what takes milliseconds on an idle machine.
const patience = 30 * time.Second

// A cluster is a set of real nodes in this process, over loopback TCP and real files.
type cluster struct {
	t       testing.TB
	dir     string
	members map[string]string
	nodes   map[string]*running
	change  func(*Config)     // applied to every node that is started
	joined  map[string]string // nodes that were added: name -> peer address
}

// A running is a node between start and stop.
type running struct {
	*Node
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of Run; read after ended
}

func newCluster(t testing.TB, size int, change func(*Config)) *cluster {
	c := &cluster{t: t, dir: t.TempDir(), members: make(map[string]string), nodes: make(map[string]*running), change: change}
	listeners := make(map[string]net.Listener)
	for i := range size {
		l := listen(t)
		name := fmt.Sprintf("n%d", i+1)
		listeners[name], c.members[name] = l, l.Addr().String()
	}
	for name, l := range listeners {
		c.startOn(name, l)
	}
	t.Cleanup(func() {
		for name := range c.nodes {
			c.stop(name)
		}
	})
	return c
}

// listen listens at an address that no other program's connection gets while the node is down.
func listen(t testing.TB) net.Listener {
	t.Helper()
	free, err := testbed.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", free[0])
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (c *cluster) config(name string, l net.Listener) Config {
	cfg := Config{
		Name: name, DataDir: filepath.Join(c.dir, name), Members: c.members,
		ClientAddress: name + ".example:7400", Listener: l, Secrets: func() [][]byte { return [][]byte{[]byte("test")} },
	}
	if c.joined[name] != "" {
		cfg.Join, cfg.Members = ClusterID(c.members), map[string]string{name: c.joined[name]}
		for other := range c.nodes {
			if other != name {
				cfg.Members[other] = c.address(other)
			}
		}
	}
	if testing.Verbose() {
		h := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})
		cfg.Logger = slog.New(h).With("node", name)
	}
	if c.change != nil {
		c.change(&cfg)
	}
	return cfg
}

func (c *cluster) startOn(name string, l net.Listener) *running {
	c.t.Helper()
	r := c.run(c.config(name, l))
	c.nodes[name] = r
	return r
}

func (c *cluster) run(cfg Config) *running {
	c.t.Helper()
	n, err := New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Node: n, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = n.Run(ctx)
	}()
	return r
}

// start starts a node again at its old address.
func (c *cluster) start(name string) *running {
	c.t.Helper()
	var l net.Listener
	c.eventually("the old port is free", func() (err error) {
		l, err = net.Listen("tcp", c.address(name))
		return err
	})
	return c.startOn(name, l)
}

func (c *cluster) address(name string) string {
	if a := c.joined[name]; a != "" {
		return a
	}
	return c.members[name]
}

// stop stops a node without a handover.
func (c *cluster) stop(name string) {
	c.t.Helper()
	r := c.nodes[name]
	if r == nil {
		return
	}
	delete(c.nodes, name)
	r.cancel()
	if err := r.wait(c.t); err != nil {
		c.t.Errorf("node %s: %v", name, err)
	}
}

// wait returns the error that Run ended with.
func (r *running) wait(t testing.TB) error {
	t.Helper()
	select {
	case <-r.ended:
		return r.err
	case <-time.After(patience):
		t.Fatal("Run has not returned")
		return nil
	}
}

func (c *cluster) eventually(what string, try func() error) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("never came: %s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// leader waits for a node that serves.
func (c *cluster) leader() *running {
	c.t.Helper()
	var leader *running
	c.eventually("a leader that serves", func() error {
		for _, r := range c.nodes {
			if s := r.Status(); s.Serving && s.Replica.NoFloor == "" {
				leader = r
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return leader
}

// lead makes the node called name the leader.
func (c *cluster) lead(name string) *running {
	c.t.Helper()
	c.eventually(name+" leads", func() error {
		leader := c.leader()
		if leader.cfg.Name == name {
			return nil
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		return errors.Join(leader.HandOverTo(ctx, c.nodes[name].Status().ID), errors.New("another one leads"))
	})
	return c.nodes[name]
}

// A client is a stream to one node.
type client struct {
	t       testing.TB
	n       *running
	id      lead.StreamID
	replies chan lead.Reply
	tag     uint64
	session command.SessionID
}

func (c *cluster) connect(n *running) *client {
	cl := &client{t: c.t, n: n, replies: make(chan lead.Reply, 10_000)}
	cl.id = n.Connect(func(rs []lead.Reply) {
		for _, r := range rs {
			cl.replies <- r
		}
	})
	return cl
}

// call sends a request and waits for its answer. Other replies are skipped.
func (cl *client) call(body lead.Body) lead.Answer {
	cl.t.Helper()
	cl.tag++
	req := lead.Request{Stream: cl.id, Tag: cl.tag, Received: cl.n.Now(), Session: cl.session, Body: body}
	if err := cl.n.Submit([]lead.Request{req}); err != nil {
		cl.t.Fatalf("submit: %v", err)
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case r := <-cl.replies:
			if r.Tag == cl.tag {
				return r.Answer
			}
		case <-timeout.C:
			cl.t.Fatalf("no answer to %T", body)
		}
	}
}

func (cl *client) open() {
	cl.t.Helper()
	a := cl.call(lead.Open{TTL: 60_000, Random: [8]byte{1}, Secret: command.Secret{2}, ClientNumbered: true, Attach: true})
	opened, ok := a.(lead.Opened)
	if !ok {
		cl.t.Fatalf("open: %+v", a)
	}
	cl.session = opened.Session
}

// acquire takes a free lock and returns its token.
func (cl *client) acquire(seq uint64, name string) command.Token {
	cl.t.Helper()
	a := cl.call(lead.Acquire{Claim: command.Acquire{
		Session: cl.session, Seq: seq, Floor: seq, Spec: command.Spec{Names: []string{name}},
	}})
	claimed, ok := a.(lead.Claimed)
	if !ok || claimed.Claim.State != command.Granted {
		cl.t.Fatalf("acquire %s: %+v", name, a)
	}
	return claimed.Claim.Token
}
