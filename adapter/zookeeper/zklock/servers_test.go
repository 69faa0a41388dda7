package zklock_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/internal/testbed/zkserver"
)

// suiteTTL is six ticks of the servers.
const suiteTTL = 3 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick keeps tests from waiting for the disk: they kill servers but do not cut power.
const quick = "forceSync=no"

// startServers starts servers for one test.
func startServers(t testing.TB, servers int, options ...string) *zkserver.Ensemble {
	t.Helper()
	e, err := zkserver.Start(zkserver.Config{Dir: t.TempDir(), Servers: servers, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// A cuttable is a Locker that reaches the servers only through its own proxies, so that it can be
// cut off on its own.
type cuttable struct {
	*zklock.Locker
	proxies []*testbed.Proxy // one for each server
}

// openCuttable returns a Locker that is closed at the end of the test.
func openCuttable(t testing.TB, servers []string, cfg zklock.Config) *cuttable {
	t.Helper()
	c := &cuttable{}
	for _, server := range servers {
		p, err := testbed.NewProxy(server)
		if err != nil {
			t.Fatal(err)
		}
		c.proxies = append(c.proxies, p)
		cfg.Servers = append(cfg.Servers, p.Address())
	}
	t.Cleanup(func() { c.each((*testbed.Proxy).Close) })
	c.Locker = open(t, cfg)
	return c
}

// Close closes the proxies too.
func (c *cuttable) Close(ctx context.Context) error {
	defer c.each((*testbed.Proxy).Close)
	return c.Locker.Close(ctx)
}

func (c *cuttable) each(f func(*testbed.Proxy)) {
	for _, p := range c.proxies {
		f(p)
	}
}

func (c *cuttable) cut()  { c.each((*testbed.Proxy).Cut) }
func (c *cuttable) heal() { c.each((*testbed.Proxy).Heal) }

// open returns a Locker that is closed at the end of the test.
func open(t testing.TB, cfg zklock.Config) *zklock.Locker {
	t.Helper()
	if cfg.TTL == 0 {
		cfg.TTL, cfg.TickTime = suiteTTL, 500*time.Millisecond
	}
	l, err := zklock.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Logf("close: %v", err)
		}
	})
	return l
}

// An operator uses ZooKeeper independently of the Lockers.
type operator struct {
	t    testing.TB
	conn *zk.Conn
}

func newOperator(t testing.TB, servers []string) operator {
	t.Helper()
	conn, events, err := zk.Connect(servers, 10*time.Second, zk.WithLogger(silence{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	return operator{t, conn}
}

type silence struct{}

func (silence) Printf(string, ...any) {}

const root = "/lockstep"

func dirOf(name string) string { return root + "/locks/" + url.PathEscape(name) }

// claims returns the nodes of a lock, unordered.
func (o operator) claims(name string) []string {
	o.t.Helper()
	var nodes []string
	o.retry("list "+name, func() error {
		if _, err := o.conn.Sync(dirOf(name)); err != nil && err != zk.ErrNoNode {
			return err
		}
		found, _, err := o.conn.Children(dirOf(name))
		if err == zk.ErrNoNode {
			err = nil
		}
		nodes = found
		return err
	})
	return nodes
}

// deleteClaims removes the nodes of a lock without anyone's knowledge.
func (o operator) deleteClaims(name string) {
	o.t.Helper()
	for _, node := range o.claims(name) {
		o.retry("delete "+node, func() error {
			err := o.conn.Delete(dirOf(name)+"/"+node, -1)
			if err == zk.ErrNoNode {
				return nil
			}
			return err
		})
	}
}

// retry calls f until it works; servers may be in the middle of an election.
func (o operator) retry(what string, f func() error) {
	o.t.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	o.t.Fatalf("%s: %v", what, err)
}
