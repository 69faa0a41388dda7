package demo

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
)

const nodeCount = 5

// A cluster is five server processes on this machine.
type cluster struct {
	nodes  [nodeCount]node
	claims []net.PacketConn // the UDP twin of each port, which others that look for free ports find taken
}

// A node is one server process; process is nil while it is down.
type node struct {
	name                       string
	client, peer, http, health string
	process                    *exec.Cmd
	exited                     chan struct{}
}

func (c *cluster) endpoints() string {
	var list []string
	for i := range c.nodes {
		list = append(list, c.nodes[i].client)
	}
	return strings.Join(list, ",")
}

func (c *cluster) peers() string {
	var list []string
	for i := range c.nodes {
		list = append(list, c.nodes[i].name+"="+c.nodes[i].peer)
	}
	return strings.Join(list, ",")
}

// claimAddresses finds ports that stay free while a node is down.
func (c *cluster) claimAddresses() error {
	free, err := c.addresses(4 * nodeCount)
	if err != nil {
		return err
	}
	for i := range c.nodes {
		n := &c.nodes[i]
		n.name = fmt.Sprintf("n%d", i+1)
		n.client, n.peer, n.http, n.health = free[4*i], free[4*i+1], free[4*i+2], free[4*i+3]
	}
	return nil
}

// addresses finds ports on which nobody listens. They are below those that the kernel gives to
// outgoing connections, which could take the port of a node that is down.
func (c *cluster) addresses(count int) (found []string, err error) {
	const lowest, highest, maxTries = 10_000, 32_767, 1_000
	for range maxTries {
		if len(found) == count {
			return found, nil
		}
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest+1))
		var claim net.PacketConn
		if claim, err = net.ListenPacket("udp", address); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", address); err != nil {
			claim.Close()
			continue
		}
		l.Close()
		c.claims = append(c.claims, claim)
		found = append(found, address)
	}
	return nil, fmt.Errorf("find free ports: %w", err)
}

// secretFile is the name of the file with the cluster secret.
const secretFile = "cluster.secret"

func (s *stage) writeSecret() error {
	return os.WriteFile(s.path(secretFile), []byte(crand.Text()+crand.Text()), 0o600)
}

func (s *stage) startNode(i int) error {
	n := &s.cluster.nodes[i]
	log, err := os.OpenFile(s.path(n.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", n.name, err)
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(s.binary, "server", "--name", n.name, "--data-dir", s.path(n.name),
		"--listen", n.client, "--peer-listen", n.peer, "--http-listen", n.http, "--health-listen", n.health, "--initial-cluster", s.cluster.peers(),
		"--cluster-secret-file", s.path(secretFile))
	cmd.Env, cmd.Stdout, cmd.Stderr = environment(), log, log
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

func (c *cluster) kill(i int) {
	n := &c.nodes[i]
	if n.process == nil {
		return
	}
	_ = n.process.Process.Kill() // it may have ended already
	<-n.exited
	n.process = nil
}

func (c *cluster) killAll() {
	for i := range c.nodes {
		c.kill(i)
	}
	for _, claim := range c.claims {
		claim.Close()
	}
}

// A status is the part of "lockstep status -o json" that is used here.
type status struct {
	Leader  string `json:"leader"`
	Term    uint64 `json:"term"`
	Members []struct {
		Name   string `json:"name"`
		Role   string `json:"role"`
		Health string `json:"health"`
	} `json:"members"`
}

func (s *stage) status(ctx context.Context) (status, error) {
	out, err := s.output(ctx, "status", "-o", "json")
	if err != nil {
		return status{}, err
	}
	var st status
	if err := json.Unmarshal(out, &st); err != nil {
		return status{}, fmt.Errorf("read the status: %w", err)
	}
	return st, nil
}

// leader waits for a leader other than the node named except, and returns its index.
func (s *stage) leader(ctx context.Context, except string) (int, error) {
	for ctx.Err() == nil {
		st, err := s.status(ctx)
		if err == nil && st.Leader != "" && st.Leader != except {
			return s.cluster.index(st.Leader)
		}
		lease.Sleep(ctx, 50*time.Millisecond)
	}
	return 0, errors.New("no leader was elected")
}

func (c *cluster) index(name string) (int, error) {
	for i := range c.nodes {
		if c.nodes[i].name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%q is not a node of this cluster", name)
}

// lockstep returns a command that talks to this cluster, or to the backend.
func (s *stage) lockstep(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = append(environment(), s.backend...)
	if s.backend == nil {
		cmd.Env = append(cmd.Env, "LOCKSTEP_ENDPOINTS="+s.cluster.endpoints())
	}
	cmd.Dir = s.dir
	return cmd
}

// environment returns our environment without the LOCKSTEP_ variables, which may point to another
// cluster.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "LOCKSTEP_") })
}

func (s *stage) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := s.lockstep(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("lockstep %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
