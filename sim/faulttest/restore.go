package faulttest

import (
	"os"
)

// Restore kills all nodes, deletes their directories, recreates them from a backup and starts the
// nodes. flags are passed to snapshot restore.
func (c *Cluster) Restore(file string, flags ...string) {
	c.t.Helper()
	c.Wipe()
	for i, n := range c.nodes {
		args := append([]string{
			"snapshot", "restore", file, "--name", n.name, "--data-dir", c.DataDir(i), "--initial-cluster", c.peers(),
		}, flags...)
		if out, err := c.Command(args...).CombinedOutput(); err != nil {
			c.t.Fatalf("restore %s: %v\n%s", n.name, err, out)
		}
	}
	c.StartAll()
}

// Wipe kills all nodes and deletes their directories.
func (c *Cluster) Wipe() {
	c.t.Helper()
	c.KillAll()
	for i := range c.nodes {
		if err := os.RemoveAll(c.DataDir(i)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// StartAll starts every node.
func (c *Cluster) StartAll() {
	c.t.Helper()
	for i := range c.nodes {
		c.StartNode(i)
	}
}
