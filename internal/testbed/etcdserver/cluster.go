package etcdserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// etcd raises the TTL of a lease to 3/2 of the election timeout, counted in whole heartbeats and
// rounded up to a second: 9 heartbeats of 100 ms are less than one second.
const (
	heartbeatMS = "100"
	electionMS  = "600"
)

// patience bounds the start of a cluster, on a machine that is also busy with other tests.
const patience = 60 * time.Second

// A Cluster is a set of etcd members on this machine. It is safe for concurrent use, except for
// Close, which must be the last call.
type Cluster struct{ members []*member }

type member struct {
	client  string // host:port
	process *testbed.Process
}

// Start starts a cluster of 1 or 3 members that keep their data below dir, which must exist. It
// returns when all members are serving.
func Start(dir string, members int) (*Cluster, error) {
	if members != 1 && members != 3 {
		return nil, fmt.Errorf("etcdserver: members is %d: must be 1 or 3", members)
	}
	program, err := Program()
	if err != nil {
		return nil, err
	}
	addresses, err := testbed.Addresses(2 * members)
	if err != nil {
		return nil, err
	}
	clients, peers := addresses[:members], addresses[members:]
	c := &Cluster{}
	var commands []testbed.Command
	for i, client := range clients {
		c.members = append(c.members, &member{client: client})
		commands = append(commands, testbed.Command{
			Path: program, Args: arguments(filepath.Join(dir, name(i)), i, client, peers),
			Log: filepath.Join(dir, name(i)+".log"), Patience: patience,
			Ready: func() error { return serves(client) },
		})
	}
	err = c.each(func(i int, m *member) (err error) {
		m.process, err = testbed.Start(commands[i])
		return err
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func name(i int) string { return fmt.Sprintf("etcd%d", i) }

// arguments are those of member i. All members list all peers.
func arguments(data string, i int, client string, peers []string) []string {
	var cluster []string
	for j, peer := range peers {
		cluster = append(cluster, name(j)+"=http://"+peer)
	}
	return []string{
		"--name", name(i), "--data-dir", data,
		"--listen-client-urls", "http://" + client, "--advertise-client-urls", "http://" + client,
		"--listen-peer-urls", "http://" + peers[i], "--initial-advertise-peer-urls", "http://" + peers[i],
		"--initial-cluster", strings.Join(cluster, ","),
		"--heartbeat-interval", heartbeatMS, "--election-timeout", electionMS,
		"--log-level", "warn",
	}
}

// each calls f for all members concurrently: one of three members is ready only when another one is
// up.
func (c *Cluster) each(f func(int, *member) error) error {
	errs := make([]error, len(c.members))
	var group sync.WaitGroup
	for i, m := range c.members {
		group.Go(func() { errs[i] = f(i, m) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// Endpoints are the addresses for clients, host:port, one per member.
func (c *Cluster) Endpoints() []string {
	var found []string
	for _, m := range c.members {
		found = append(found, m.client)
	}
	return found
}

// Kill ends member i at once, as in a crash.
func (c *Cluster) Kill(i int) { c.members[i].process.Kill() }

// Start starts member i again after Kill, and waits until it is serving, which needs a majority.
func (c *Cluster) Start(i int) error { return c.members[i].process.Start() }

// Freeze suspends member i; Thaw resumes it.
func (c *Cluster) Freeze(i int) error { return c.members[i].process.Freeze() }

// Thaw resumes a frozen member.
func (c *Cluster) Thaw(i int) error { return c.members[i].process.Thaw() }

// Restart kills all members and restarts them with their stored data.
func (c *Cluster) Restart() error {
	for _, m := range c.members {
		m.process.Kill()
	}
	return c.each(func(_ int, m *member) error { return m.process.Start() })
}

// Close ends all members at once. The data stays.
func (c *Cluster) Close() {
	for _, m := range c.members {
		if m.process != nil {
			m.process.Kill()
		}
	}
}

// Leader returns the index of the leader. It asks all members until one says that it leads or ctx
// is done.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	for {
		for i, m := range c.members {
			if leads(ctx, m.client) {
				return i, nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("etcdserver: no member leads: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// leads reports whether a member says that it is the leader. A member that does not answer does not
// lead.
func leads(ctx context.Context, client string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+client+"/v3/maintenance/status", strings.NewReader("{}"))
	if err != nil {
		return false
	}
	response, err := newHTTPClient().Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err = json.NewDecoder(response.Body).Decode(&status)
	return err == nil && status.Leader != "" && status.Leader == status.Header.Member
}

// serves returns nil if a member answers, which requires a leader.
func serves(client string) error {
	response, err := newHTTPClient().Get("http://" + client + "/health")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New("the member says " + response.Status)
	}
	return nil
}

// newHTTPClient keeps no connections open, so that none is left when a cluster has ended.
func newHTTPClient() *http.Client {
	return &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
}
