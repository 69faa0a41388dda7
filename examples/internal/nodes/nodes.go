// Package nodes runs a cluster of the lock service as processes of the lockstep program that can be
// killed.
package nodes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/examples/internal/stage"
	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// patience bounds the start of a cluster.
const patience = 30 * time.Second

// A Cluster is some nodes on this machine. It is used by one goroutine.
type Cluster struct {
	nodes []*node
	admin *client.Admin
}

type node struct {
	name, client, peer, http, health string
	process                          *exec.Cmd // nil while it is down
	exited                           chan struct{}
}

// Start starts a cluster of size nodes that keep their data below dir, which exists. It returns
// when all of them know a leader.
func Start(ctx context.Context, dir string, size int) (*Cluster, error) {
	program, err := stage.Program()
	if err != nil {
		return nil, err
	}
	free, err := testbed.Addresses(4 * size)
	if err != nil {
		return nil, err
	}
	secret := filepath.Join(dir, "cluster.secret")
	if err := os.WriteFile(secret, []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		return nil, err
	}
	c := &Cluster{}
	var peers []string
	for i := range size {
		n := &node{name: fmt.Sprintf("n%d", i+1), client: free[4*i], peer: free[4*i+1], http: free[4*i+2], health: free[4*i+3]}
		c.nodes = append(c.nodes, n)
		peers = append(peers, n.name+"="+n.peer)
	}
	if c.admin, err = client.NewAdmin(client.Config{Endpoints: c.Endpoints()}); err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		if err := n.start(program, dir, "--initial-cluster", strings.Join(peers, ","), "--cluster-secret-file", secret); err != nil {
			c.Close()
			return nil, err
		}
	}
	if err := c.awaitLeader(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (n *node) start(program, dir string, flags ...string) error {
	log, err := os.OpenFile(filepath.Join(dir, n.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", n.name, err)
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(program, append([]string{
		"server", "--name", n.name, "--data-dir", filepath.Join(dir, n.name),
		"--listen", n.client, "--peer-listen", n.peer, "--http-listen", n.http, "--health-listen", n.health,
	}, flags...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = stage.Environment(), log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // a killed server ends with an error
		close(exited)
	}()
	n.process, n.exited = cmd, exited
	return nil
}

func (c *Cluster) awaitLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ctx.Err() == nil {
		if c.known(ctx) {
			return nil
		}
		stage.Sleep(ctx, 100*time.Millisecond)
	}
	return errors.New("the nodes did not elect a leader")
}

// known reports whether all nodes know a leader.
func (c *Cluster) known(ctx context.Context) bool {
	for _, s := range c.admin.Status(ctx) {
		if s.Err != nil || s.Status.GetLeader() == "" {
			return false
		}
	}
	return true
}

// Endpoints are the addresses for clients, host:port.
func (c *Cluster) Endpoints() []string {
	var list []string
	for _, n := range c.nodes {
		list = append(list, n.client)
	}
	return list
}

// Name is the name of node i, from 0.
func (c *Cluster) Name(i int) string { return c.nodes[i].name }

// Leader returns the node that leads: the one that says so itself.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	for i, s := range c.admin.Status(ctx) {
		if s.Err == nil && s.Status.GetLeader() == c.nodes[i].name {
			return i, nil
		}
	}
	return 0, errors.New("no node leads")
}

// Kill ends node i with SIGKILL.
func (c *Cluster) Kill(i int) {
	n := c.nodes[i]
	if n.process == nil {
		return
	}
	_ = n.process.Process.Kill() // it may have ended by itself
	<-n.exited
	n.process = nil
}

// Close kills all nodes.
func (c *Cluster) Close() {
	c.admin.Close()
	for i := range c.nodes {
		c.Kill(i)
	}
}
