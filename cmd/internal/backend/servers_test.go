//go:build unix

package backend_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
	"github.com/lockstep-dev/lockstep/internal/testbed/zkserver"
)

// A stage is a running backend.
type stage struct {
	url string
	// disturb causes a fault that the backend claims to survive, while jobs run. Nil: it survives
	// none.
	disturb func(t testing.TB)
}

// stages start the backends. Each one ends with its test.
var stages = []struct {
	name  string
	start func(t testing.TB, binary string) stage
}{
	{"lockstep", startService},
	{"redis", startRedis},
	{"redlock", startRedlock},
	{"zk", startZooKeeper},
	{"etcd", startEtcd},
	{"postgres", startPostgres},
	{"postgres behind pgbouncer", startPooled},
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build builds the program.
func build(t testing.TB) string {
	binary := filepath.Join(t.TempDir(), "lockstep")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/lockstep-dev/lockstep/cmd/lockstep").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

func startService(t testing.TB, binary string) stage {
	ports, err := testbed.Addresses(1)
	must(t, err)
	dir := t.TempDir()
	var endpoints string
	log := filepath.Join(dir, "log")
	p, err := testbed.Start(testbed.Command{
		Path: binary, Args: []string{"dev", "--nodes", "3", "--port", strings.TrimPrefix(ports[0], "127.0.0.1:"), "--data-dir", filepath.Join(dir, "data")},
		Log: log, Ready: func() (err error) {
			endpoints, err = readyLine(log)
			return err
		},
	})
	must(t, err)
	t.Cleanup(p.Kill)
	return stage{url: "lockstep://" + endpoints}
}

func readyLine(log string) (endpoints string, err error) {
	text, err := os.ReadFile(log)
	_, rest, found := strings.Cut(string(text), "ready LOCKSTEP_ENDPOINTS=")
	endpoints, _, whole := strings.Cut(rest, "\n")
	if err != nil || !found || !whole {
		return "", fmt.Errorf("not ready: %w", err)
	}
	return strings.TrimSpace(endpoints), nil
}

func startRedis(t testing.TB, _ string) stage {
	s, err := redisserver.Start(redisserver.Config{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(s.Close)
	return stage{url: "redis://" + s.Address() + "/0"}
}

func startRedlock(t testing.TB, _ string) stage {
	var servers []*redisserver.Server
	var addresses []string
	for range 5 {
		s, err := redisserver.Start(redisserver.Config{Dir: t.TempDir(), Persistence: redisserver.AppendAlways})
		must(t, err)
		t.Cleanup(s.Close)
		servers, addresses = append(servers, s), append(addresses, s.Address())
	}
	return stage{url: "redlock://" + strings.Join(addresses, ","), disturb: func(t testing.TB) {
		servers[0].Kill()
		servers[1].Kill()
		time.Sleep(500 * time.Millisecond)
		must(t, servers[0].Start())
	}}
}

func startZooKeeper(t testing.TB, _ string) stage {
	e, err := zkserver.Start(zkserver.Config{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(e.Close)
	return stage{url: "zk://" + strings.Join(e.Addresses(), ",") + "/counter", disturb: func(t testing.TB) {
		leader, err := e.Leader()
		must(t, err)
		e.Kill(leader)
		time.Sleep(500 * time.Millisecond)
		must(t, e.Start(leader))
	}}
}

func startEtcd(t testing.TB, _ string) stage {
	c, err := etcdserver.Start(t.TempDir(), 3)
	must(t, err)
	t.Cleanup(c.Close)
	var hosts []string
	for _, e := range c.Endpoints() {
		hosts = append(hosts, strings.TrimPrefix(e, "http://"))
	}
	return stage{url: "etcd://" + strings.Join(hosts, ","), disturb: func(t testing.TB) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		leader, err := c.Leader(ctx)
		must(t, err)
		c.Kill(leader)
		time.Sleep(500 * time.Millisecond)
		must(t, c.Start(leader))
	}}
}

func startPostgres(t testing.TB, binary string) stage {
	s := postgresWithTable(t, binary)
	return stage{url: s.URL(), disturb: func(t testing.TB) {
		s.Kill()
		must(t, s.Start())
	}}
}

func startPooled(t testing.TB, binary string) stage {
	b, err := pgserver.StartBouncer(postgresWithTable(t, binary))
	must(t, err)
	t.Cleanup(b.Close)
	return stage{url: b.URL()}
}

// postgresWithTable creates the table as a user would, by passing the output of the program to
// psql.
func postgresWithTable(t testing.TB, binary string) *pgserver.Server {
	s, err := pgserver.Start(pgserver.Config{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	schema, err := exec.Command(binary, "backends", "schema").Output()
	must(t, err)
	psql := exec.Command("psql", "-q", "-v", "ON_ERROR_STOP=1", s.URL())
	psql.Stdin = strings.NewReader(string(schema))
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return s
}
