package faulttest

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// A Cluster is a set of server processes on this machine. It is used by the goroutine of one test.
type Cluster struct {
	t      *testing.T
	binary string
	dir    string
	nodes  []*node
}

type node struct {
	name                       string
	client, peer, http, health string
	process                    *exec.Cmd
	exited                     chan struct{}
}

// Start starts a cluster of size nodes. Its processes and files are removed when the test ends. It
// builds the program from this repository.
func Start(t *testing.T, size int) *Cluster {
	t.Helper()
	c := &Cluster{t: t, binary: build(t), dir: t.TempDir()}
	free, err := testbed.Addresses(4 * size)
	if err != nil {
		t.Fatal(err)
	}
	for i := range size {
		c.nodes = append(c.nodes, &node{
			name: fmt.Sprintf("n%d", i+1), client: free[4*i], peer: free[4*i+1], http: free[4*i+2], health: free[4*i+3],
		})
	}
	t.Cleanup(c.KillAll)
	if err := os.WriteFile(c.SecretFile(), []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range c.nodes {
		c.StartNode(i)
	}
	return c
}

// programDir is the environment variable that names the directory where Run keeps the program.
const programDir = "FAULTTEST_PROGRAM_DIR"

// Run runs the tests of a package and returns the exit code, for its TestMain. All clusters then
// share one build of the program, since building takes longer than much of what is tested.
func Run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lockstep-faulttest-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Setenv(programDir, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "faulttest:", err)
		return 1
	}
	return m.Run()
}

// build returns the program, and builds it unless another test has done so.
func build(t *testing.T) string {
	t.Helper()
	fresh := filepath.Join(t.TempDir(), "lockstep")
	binary := fresh
	if dir := os.Getenv(programDir); dir != "" {
		binary = filepath.Join(dir, "lockstep")
	}
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	cmd := exec.Command("go", "build", "-o", fresh, "github.com/lockstep-dev/lockstep/cmd/lockstep")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	if err := os.Rename(fresh, binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

// Endpoints returns the addresses for clients.
func (c *Cluster) Endpoints() []string {
	var list []string
	for _, n := range c.nodes {
		list = append(list, n.client)
	}
	return list
}

func (c *Cluster) peers() string {
	var list []string
	for _, n := range c.nodes {
		list = append(list, n.name+"="+n.peer)
	}
	return strings.Join(list, ",")
}

// StartNode starts node i, from 0, on its previous directory.
func (c *Cluster) StartNode(i int) {
	c.t.Helper()
	c.StartNodeWith(i, c.ServerArgs(i, false))
}

// ServerArgs returns the command line of node i, with further flags: for the whole cluster or, with
// alone, for a cluster of only this node.
func (c *Cluster) ServerArgs(i int, alone bool, flags ...string) []string {
	n := c.nodes[i]
	members := c.peers()
	if alone {
		members = n.name + "=" + n.peer
	}
	return append([]string{
		"server", "--name", n.name, "--data-dir", c.DataDir(i),
		"--listen", n.client, "--peer-listen", n.peer, "--http-listen", n.http, "--health-listen", n.health, "--initial-cluster", members,
		"--cluster-secret-file", c.SecretFile(),
	}, flags...)
}

// StartNodeWith starts node i with a command line from ServerArgs.
func (c *Cluster) StartNodeWith(i int, args []string) {
	c.t.Helper()
	n := c.nodes[i]
	log, err := os.OpenFile(filepath.Join(c.dir, n.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(c.binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.t.Fatalf("start %s: %v", n.name, err)
	}
	n.process, n.exited = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // a killed server ends with an error
		close(n.exited)
	}()
}

// SecretFile returns the file with the cluster secret.
func (c *Cluster) SecretFile() string { return filepath.Join(c.dir, "cluster.secret") }

// DataDir returns the data directory of node i.
func (c *Cluster) DataDir(i int) string { return filepath.Join(c.dir, c.nodes[i].name) }

// Peer returns the address at which node i's peers reach it.
func (c *Cluster) Peer(i int) string { return c.nodes[i].peer }

// Health returns the address of node i's health and metrics.
func (c *Cluster) Health(i int) string { return c.nodes[i].health }

// HTTP returns the address of node i's JSON API and profiles.
func (c *Cluster) HTTP(i int) string { return c.nodes[i].http }

// Pid returns the process id of node i.
func (c *Cluster) Pid(i int) int { return c.nodes[i].process.Process.Pid }

// Index finds a node by its name.
func (c *Cluster) Index(name string) int {
	for i, n := range c.nodes {
		if n.name == name {
			return i
		}
	}
	return -1
}

// Kill ends node i with SIGKILL and waits until it is gone.
func (c *Cluster) Kill(i int) { c.end(i, os.Kill) }

// Stop asks node i to shut down gracefully and waits until it is gone.
func (c *Cluster) Stop(i int) { c.end(i, os.Interrupt) }

func (c *Cluster) end(i int, signal os.Signal) {
	n := c.nodes[i]
	if n.process == nil {
		return
	}
	_ = n.process.Process.Signal(signal) // it may have exited by itself
	<-n.exited
	n.process = nil
}

// KillAll kills all running nodes at once.
func (c *Cluster) KillAll() {
	for _, n := range c.nodes {
		if n.process != nil {
			_ = n.process.Process.Kill()
		}
	}
	for i := range c.nodes {
		c.Kill(i)
	}
	if c.t.Failed() {
		c.showLogs()
	}
}

// showLogs adds the ends of the nodes' logs to the test's log.
func (c *Cluster) showLogs() {
	for _, n := range c.nodes {
		content, err := os.ReadFile(filepath.Join(c.dir, n.name+".log"))
		if err == nil {
			c.t.Logf("the end of the log of %s:\n%s", n.name, content[max(0, len(content)-4000):])
		}
	}
}

// Command returns a command of the program that talks to this cluster.
func (c *Cluster) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.binary, args...)
	cmd.Env = append(os.Environ(), "LOCKSTEP_ENDPOINTS="+strings.Join(c.Endpoints(), ","))
	return cmd
}
