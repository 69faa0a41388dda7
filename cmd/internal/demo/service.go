package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdserver"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pgserver"
	"github.com/lockstep-dev/lockstep/adapter/redis/redisserver"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zkserver"
	"github.com/lockstep-dev/lockstep/cmd/internal/backend"
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
	change string // title of the scene in which its leader changes
	start  func(context.Context, *stage) (*service, error)
}{
	{"lockstep", "The leader dies while A is frozen", startNative},
	{"etcd", "The leader dies while A is frozen", startEtcd},
	{"zk", "The leader dies while A is frozen", startZooKeeper},
	{"postgres", "The primary dies while A is frozen", startPostgres},
	{"redlock", "Two of five masters die while A is frozen", startRedlock},
}

// PauseBackends returns the backends that [Pause] can start: those whose tokens a guard can use.
func PauseBackends() (all []string) {
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

func startService(ctx context.Context, s *stage, which string) (*service, error) {
	for _, each := range services {
		if each.name == which {
			return each.start(ctx, s)
		}
	}
	u, err := backend.Parse(which)
	if err != nil {
		return nil, fmt.Errorf("backend: %w", err)
	}
	return &service{shown: "the " + u.Scheme() + " that runs", url: which}, nil
}

func startNative(ctx context.Context, s *stage) (*service, error) {
	if err := startCluster(ctx, s); err != nil {
		return nil, err
	}
	st, err := s.status(ctx)
	if err != nil {
		return nil, err
	}
	change := func(ctx context.Context) (what, leader string, err error) {
		old, err := s.leader(ctx, "")
		if err != nil {
			return "", "", err
		}
		name := s.cluster.nodes[old].name
		s.cluster.kill(old)
		now, err := s.leader(ctx, name)
		if err != nil {
			return "", "", err
		}
		return "SIGKILL to " + name, s.cluster.nodes[now].name, nil
	}
	return &service{shown: "five nodes of Lockstep", url: "lockstep://" + s.cluster.endpoints(), leader: st.Leader, change: change}, nil
}

// folder creates a new directory for this demo.
func (s *stage) folder(name string) (string, error) { return os.MkdirTemp(s.dir, name+"-") }

func startEtcd(ctx context.Context, s *stage) (*service, error) {
	dir, err := s.folder("etcd")
	if err != nil {
		return nil, err
	}
	cluster, err := etcdserver.Start(dir, 3)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, cluster.Close)
	hosts := slices.Clone(cluster.Endpoints())
	for i := range hosts {
		hosts[i] = strings.TrimPrefix(hosts[i], "http://")
	}
	leads := func(ctx context.Context) (int, error) { return cluster.Leader(ctx) }
	return changing(ctx, &service{shown: "three servers of etcd", url: "etcd://" + strings.Join(hosts, ",")}, leads, cluster.Kill)
}

func startZooKeeper(ctx context.Context, s *stage) (*service, error) {
	dir, err := s.folder("zookeeper")
	if err != nil {
		return nil, err
	}
	ensemble, err := zkserver.Start(zkserver.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, ensemble.Close)
	leads := func(context.Context) (int, error) { return ensemble.Leader() }
	return changing(ctx, &service{shown: "three servers of ZooKeeper", url: "zk://" + strings.Join(ensemble.Addresses(), ",") + "/demo"}, leads, ensemble.Kill)
}

// changing completes a service of numbered servers, one of which leads.
func changing(ctx context.Context, sv *service, leads func(context.Context) (int, error), kill func(int)) (*service, error) {
	old, err := awaitLeader(ctx, leads, -1)
	if err != nil {
		return nil, err
	}
	name := func(i int) string { return fmt.Sprintf("server %d", i+1) }
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
		sleep(ctx, 50*time.Millisecond)
	}
	return 0, errors.New("no leader was elected")
}

// startPostgres starts a primary and a standby that has everything the primary acknowledged.
func startPostgres(ctx context.Context, s *stage) (*service, error) {
	primary, err := pgserver.Start(pgserver.Config{})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { primary.Close() })
	if err := makeLockTable(ctx, primary.URL()); err != nil {
		return nil, err
	}
	standby, err := pgserver.StartStandby(primary)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { standby.Close() })
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
	schema, err := backend.PostgresSchema()
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

func startRedlock(_ context.Context, s *stage) (*service, error) {
	var servers []*redisserver.Server
	var addresses []string
	for range masterCount {
		dir, err := s.folder("redis")
		if err != nil {
			return nil, err
		}
		server, err := redisserver.Start(redisserver.Config{Dir: dir, Persistence: redisserver.AppendAlways})
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, server.Close)
		servers, addresses = append(servers, server), append(addresses, server.Address())
	}
	change := func(context.Context) (what, leader string, err error) {
		servers[0].Kill()
		servers[1].Kill()
		return "SIGKILL to two of five masters", "a majority of three", nil
	}
	return &service{shown: "five masters of Redis", url: "redlock://" + strings.Join(addresses, ","), leader: "five masters", change: change}, nil
}
