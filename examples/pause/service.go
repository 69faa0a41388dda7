package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
	"github.com/lockstep-dev/lockstep/examples/internal/locks"
	"github.com/lockstep-dev/lockstep/examples/internal/nodes"
	"github.com/lockstep-dev/lockstep/examples/internal/stage"
	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
	"github.com/lockstep-dev/lockstep/internal/testbed/zkserver"
)

// A service is where the locks of a pause demo are.
type service struct {
	shown  string
	url    string
	leader string // name of the leader, as shown; empty: there is none
	// change kills the leader and waits until another one takes over. Nil: the servers are not
	// ours.
	change func(context.Context) (what, leader string, err error)
}

// services are those that the demo can start.
var services = []struct {
	name   string // the scheme of its URLs
	change string // what its change of leader is called
	start  func(context.Context, *stage.Stage) (*service, error)
}{
	{"lockstep", "The leader dies while A is frozen", startNative},
	{"etcd", "The leader dies while A is frozen", startEtcd},
	{"zk", "The leader dies while A is frozen", startZooKeeper},
	{"postgres", "The primary dies while A is frozen", startPostgres},
	{"redlock", "Two of five masters die while A is frozen", startRedlock},
}

// Backends are what [Pause] can start: all whose tokens a guard can go by.
func Backends() (all []string) {
	for _, each := range services {
		all = append(all, each.name)
	}
	return all
}

func changeTitle(name string) string {
	for _, each := range services {
		if each.name == name {
			return each.change
		}
	}
	return ""
}

func startService(ctx context.Context, s *stage.Stage, which string) (*service, error) {
	for _, each := range services {
		if each.name == which {
			return each.start(ctx, s)
		}
	}
	scheme, err := locks.Scheme(which)
	if err != nil {
		return nil, fmt.Errorf("backend: %w", err)
	}
	return &service{shown: "the running " + scheme, url: which}, nil
}

const nodeCount = 5

func startNative(ctx context.Context, s *stage.Stage) (*service, error) {
	dir, err := s.Folder("lockstep")
	if err != nil {
		return nil, err
	}
	cluster, err := nodes.Start(ctx, dir, nodeCount)
	if err != nil {
		return nil, err
	}
	s.AtEnd(cluster.Close)
	sv := &service{shown: "five nodes of Lockstep", url: "lockstep://" + strings.Join(cluster.Endpoints(), ",")}
	return changing(ctx, sv, cluster.Name, cluster.Leader, cluster.Kill)
}

func startEtcd(ctx context.Context, s *stage.Stage) (*service, error) {
	dir, err := s.Folder("etcd")
	if err != nil {
		return nil, err
	}
	cluster, err := etcdserver.Start(dir, 3)
	if err != nil {
		return nil, err
	}
	s.AtEnd(cluster.Close)
	hosts := slices.Clone(cluster.Endpoints())
	for i := range hosts {
		hosts[i] = strings.TrimPrefix(hosts[i], "http://")
	}
	leads := func(ctx context.Context) (int, error) { return cluster.Leader(ctx) }
	return changing(ctx, &service{shown: "three servers of etcd", url: "etcd://" + strings.Join(hosts, ",")}, serverName, leads, cluster.Kill)
}

func startZooKeeper(ctx context.Context, s *stage.Stage) (*service, error) {
	dir, err := s.Folder("zookeeper")
	if err != nil {
		return nil, err
	}
	ensemble, err := zkserver.Start(zkserver.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	s.AtEnd(ensemble.Close)
	leads := func(context.Context) (int, error) { return ensemble.Leader() }
	return changing(ctx, &service{shown: "three servers of ZooKeeper", url: "zk://" + strings.Join(ensemble.Addresses(), ",") + "/demo"}, serverName, leads, ensemble.Kill)
}

func serverName(i int) string { return fmt.Sprintf("server %d", i+1) }

// changing completes a service of numbered servers of which one leads.
func changing(ctx context.Context, sv *service, name func(int) string, leads func(context.Context) (int, error), kill func(int)) (*service, error) {
	old, err := awaitLeader(ctx, leads, -1)
	if err != nil {
		return nil, err
	}
	sv.leader = name(old)
	sv.change = func(ctx context.Context) (what, leader string, err error) {
		kill(old)
		now, err := awaitLeader(ctx, leads, old)
		return "SIGKILL to " + name(old), name(now), err
	}
	return sv, nil
}

// awaitLeader waits until a server other than not leads.
func awaitLeader(ctx context.Context, leads func(context.Context) (int, error), not int) (int, error) {
	for ctx.Err() == nil {
		if i, err := leads(ctx); err == nil && i != not {
			return i, nil
		}
		stage.Sleep(ctx, 50*time.Millisecond)
	}
	return 0, errors.New("no leader was elected")
}

// startPostgres starts a primary and a standby that has all that the primary has acknowledged.
func startPostgres(ctx context.Context, s *stage.Stage) (*service, error) {
	primary, err := pgserver.Start(pgserver.Config{})
	if err != nil {
		return nil, err
	}
	s.AtEnd(func() { primary.Close() })
	if err := makeLockTable(ctx, primary.URL()); err != nil {
		return nil, err
	}
	standby, err := pgserver.StartStandby(primary)
	if err != nil {
		return nil, err
	}
	s.AtEnd(func() { standby.Close() })
	both := primary.Address() + "," + standby.Address()
	change := func(context.Context) (what, leader string, err error) {
		primary.Kill()
		return "SIGKILL to the primary", "the standby", standby.Promote()
	}
	url := strings.Replace(primary.URL(), primary.Address(), both, 1)
	return &service{shown: "PostgreSQL with a synchronous standby", url: url + writable(url), leader: "the primary", change: change}, nil
}

// writable adds what the URL needs for clients to find the server that accepts writes.
func writable(url string) string {
	const parameter = "target_session_attrs=read-write"
	if strings.Contains(url, "?") {
		return "&" + parameter
	}
	return "?" + parameter
}

func makeLockTable(ctx context.Context, url string) error {
	schema, err := pglock.Schema("")
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, schema)
	return err
}

// masterCount is the number of Redlock masters.
const masterCount = 5

func startRedlock(_ context.Context, s *stage.Stage) (*service, error) {
	var servers []*redisserver.Server
	var addresses []string
	for range masterCount {
		dir, err := s.Folder("redis")
		if err != nil {
			return nil, err
		}
		server, err := redisserver.Start(redisserver.Config{Dir: dir, Persistence: redisserver.AppendAlways})
		if err != nil {
			return nil, err
		}
		s.AtEnd(server.Close)
		servers, addresses = append(servers, server), append(addresses, server.Address())
	}
	change := func(context.Context) (what, leader string, err error) {
		servers[0].Kill()
		servers[1].Kill()
		return "SIGKILL to two of five masters", "a majority of three", nil
	}
	return &service{shown: "five masters of Redis", url: "redlock://" + strings.Join(addresses, ","), leader: "five masters", change: change}, nil
}
