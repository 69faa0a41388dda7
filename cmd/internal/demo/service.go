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

// A service is where the locks of a pause are.
type service struct {
	shown  string
	url    string
	leader string // who leads, as it is shown; empty: there is no such server
	// change kills whoever leads and waits until another does. Nil: the servers are not ours.
	change func(context.Context) (what, leader string, err error)
}

// services are those that the demonstration can start.
var services = []struct {
	name   string // the scheme of its URLs
	change string // what its change of leader is called
	start  func(context.Context, *stage) (*service, error)
}{
	{"lockstep", "The leader dies while A is frozen", startNative},
	{"etcd", "The leader dies while A is frozen", startEtcd},
	{"zk", "The leader dies while A is frozen", startZooKeeper},
	{"postgres", "The primary dies while A is frozen", startPostgres},
	{"redlock", "Two of five masters die while A is frozen", startRedlock},
}

// PauseBackends are what [Pause] can start: all whose tokens a guard can go by.
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

// folder is a new one of this demonstration.
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

// changing completes a service of numbered servers of which one leads.
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

// awaitLeader waits until a server leads that is not the one given.
func awaitLeader(ctx context.Context, leads func(context.Context) (int, error), not int) (int, error) {
	for ctx.Err() == nil {
		if i, err := leads(ctx); err == nil && i != not {
			return i, nil
		}
		sleep(ctx, 50*time.Millisecond)
	}
	return 0, errors.New("no leader was elected")
}

// startPostgres starts a primary and a standby that has all that the primary has acknowledged.
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

// writable is what the URL needs so that clients find the server that takes writes.
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

// masterCount is how many masters Redlock has.
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
