package zkserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// An Ensemble is a set of servers started by Start and numbered from 0. It is safe for concurrent
// use.
type Ensemble struct {
	ports   []ports
	servers []*testbed.Process
}

// Start starts the servers and returns when all of them are serving.
func Start(cfg Config) (*Ensemble, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.validate(), Installed()); err != nil {
		return nil, err
	}
	all, err := findPorts(cfg.Servers)
	if err != nil {
		return nil, err
	}
	e := &Ensemble{ports: all, servers: make([]*testbed.Process, cfg.Servers)}
	err = e.each(func(i int) error {
		command, err := e.prepare(cfg, i)
		if err != nil {
			return err
		}
		e.servers[i], err = testbed.Start(command)
		return err
	})
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func findPorts(servers int) ([]ports, error) {
	addresses, err := testbed.Addresses(3 * servers)
	if err != nil {
		return nil, err
	}
	var all []ports
	for ; len(addresses) > 0; addresses = addresses[3:] {
		all = append(all, ports{client: addresses[0], peer: addresses[1], election: addresses[2]})
	}
	return all, nil
}

// prepare writes the files that a server needs.
func (e *Ensemble) prepare(cfg Config, i int) (testbed.Command, error) {
	dir := filepath.Join(cfg.Dir, fmt.Sprintf("zookeeper-%d", i+1))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return testbed.Command{}, err
	}
	config := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(config, []byte(cfg.zooCfg(dir, e.ports, i)), 0o644); err != nil {
		return testbed.Command{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "myid"), fmt.Appendf(nil, "%d\n", i+1), 0o644); err != nil {
		return testbed.Command{}, err
	}
	return testbed.Command{
		Path: "java", Args: javaArgs(config), Dir: dir, Log: filepath.Join(dir, "server.log"),
		Ready:    func() error { return e.serves(i) },
		Patience: time.Minute,
	}, nil
}

// serves returns nil if the server is part of a quorum or runs standalone.
func (e *Ensemble) serves(i int) error {
	mode, err := e.mode(i)
	if err == nil && mode == "" {
		err = errors.New("it belongs to no quorum yet")
	}
	return err
}

// mode is "leader", "follower", "standalone", or empty while the server is not serving.
func (e *Ensemble) mode(i int) (string, error) {
	answer, err := ask(e.ports[i].client, "srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(answer) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", nil
}

// ask sends one of ZooKeeper's four-letter words.
func ask(address, word string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 64<<10))
	return string(answer), err
}

// Addresses are where clients connect, by server.
func (e *Ensemble) Addresses() []string {
	var addresses []string
	for _, p := range e.ports {
		addresses = append(addresses, p.client)
	}
	return addresses
}

// Leader returns the leader; a standalone server is its own leader. It returns an error during an
// election.
func (e *Ensemble) Leader() (int, error) {
	for i := range e.ports {
		if mode, err := e.mode(i); err == nil && (mode == "leader" || mode == "standalone") {
			return i, nil
		}
	}
	return 0, errNoLeader
}

// Kill ends one server at once, as in a crash. It does nothing if the server is not running.
func (e *Ensemble) Kill(i int) { e.servers[i].Kill() }

// Start restarts a killed server, and returns when it is serving.
func (e *Ensemble) Start(i int) error { return e.servers[i].Start() }

// Freeze suspends one server, so that its connections stay open; Thaw resumes it.
func (e *Ensemble) Freeze(i int) error { return e.servers[i].Freeze() }

// Thaw resumes a frozen server.
func (e *Ensemble) Thaw(i int) error { return e.servers[i].Thaw() }

// Restart kills all servers at once, restarts them with their stored data, and returns when they
// are serving.
func (e *Ensemble) Restart(ctx context.Context) error {
	e.Close()
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.each(e.Start)
}

// Close kills all servers. Their files stay.
func (e *Ensemble) Close() {
	for _, p := range e.servers {
		if p != nil {
			p.Kill()
		}
	}
}

// each calls f for all servers concurrently and joins the errors: no member serves before a
// majority is up.
func (e *Ensemble) each(f func(i int) error) error {
	failed := make([]error, len(e.ports))
	var group sync.WaitGroup
	for i := range e.ports {
		group.Go(func() { failed[i] = f(i) })
	}
	group.Wait()
	return errors.Join(failed...)
}
