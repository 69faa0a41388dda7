// Package locks opens a backend that is named by its URL. It shows what each needs; a program that
// knows its backend needs one of these functions.
package locks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
	"github.com/lockstep-dev/lockstep/adapter/redis/redislock"
	"github.com/lockstep-dev/lockstep/adapter/redis/redlock"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
	"github.com/lockstep-dev/lockstep/client"
)

// Config says how the locks are used.
type Config struct {
	TTL time.Duration
	// Patience bounds how long a backend that does not answer is tried.
	Patience time.Duration
	// Dial makes the connections to host:port. Nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

func (c Config) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Dial == nil {
		return nil
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) { return c.Dial(ctx, address) }
}

// A place is a URL in its parts. It may have several hosts.
type place struct {
	text  string
	user  *url.Userinfo
	hosts []string
	path  string // after the hosts, without the slash
}

func (p place) login() (user, password string) {
	password, _ = p.user.Password()
	return p.user.Username(), password
}

var openers = map[string]func(place, Config) (lockstep.Locker, error){
	"lockstep": openService, "etcd": openEtcd, "zk": openZooKeeper, "postgres": openPostgres, "redis": openRedis, "redlock": openRedlock,
}

// Scheme returns the scheme of the URL of a backend, or an error if there is no such backend.
func Scheme(text string) (string, error) {
	scheme, _, found := strings.Cut(text, "://")
	if openers[scheme] == nil || !found {
		known := strings.Join(slices.Sorted(maps.Keys(openers)), ", ")
		return "", fmt.Errorf("%s is not the URL of a backend, such as etcd://127.0.0.1:2379: the schemes are %s", lockstep.Excerpt(text), known)
	}
	return scheme, nil
}

// Open opens the backend at a URL. It does no I/O. What it uses lasts as long as the process.
func Open(text string, cfg Config) (lockstep.Locker, error) {
	scheme, err := Scheme(text)
	if err != nil {
		return nil, err
	}
	rest, _, _ := strings.Cut(strings.TrimPrefix(text, scheme+"://"), "?")
	hosts, path, _ := strings.Cut(rest, "/")
	p := place{text: text, path: path}
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		parsed, err := url.Parse("x://" + hosts[:at] + "@x")
		if err != nil {
			return nil, errors.New("user and password cannot be read: write %40 for @ and %2F for /")
		}
		p.user, hosts = parsed.User, hosts[at+1:]
	}
	p.hosts = strings.Split(hosts, ",")
	l, err := openers[scheme](p, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", scheme, err)
	}
	return l, nil
}

func openService(p place, cfg Config) (lockstep.Locker, error) {
	c := client.Config{Endpoints: p.hosts, TTL: cfg.TTL, UnavailableAfter: cfg.Patience}
	if cfg.Dial != nil {
		c.DialOptions = []grpc.DialOption{grpc.WithContextDialer(cfg.Dial)}
	}
	return client.New(c)
}

func openEtcd(p place, cfg Config) (lockstep.Locker, error) {
	user, password := p.login()
	c := clientv3.Config{
		Endpoints: p.hosts, Username: user, Password: password, Logger: zap.NewNop(), DialTimeout: cfg.Patience,
		// Without a keepalive of the connection the client would stay with a server that is cut off.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	}
	if cfg.Dial != nil {
		c.DialOptions = append(c.DialOptions, grpc.WithContextDialer(cfg.Dial))
	}
	cli, err := clientv3.New(c)
	if err != nil {
		return nil, err
	}
	return etcdlock.New(cli, etcdlock.Config{TTL: cfg.TTL, UnavailableAfter: cfg.Patience})
}

func openZooKeeper(p place, cfg Config) (lockstep.Locker, error) {
	root := ""
	if p.path != "" {
		root = "/" + p.path
	}
	user, password := p.login()
	return zklock.New(zklock.Config{
		Servers: p.hosts, TTL: cfg.TTL, Root: root, User: user, Password: password, Dial: cfg.dial(), UnavailableAfter: cfg.Patience,
	})
}

func openPostgres(p place, cfg Config) (lockstep.Locker, error) {
	c, err := pgxpool.ParseConfig(p.text)
	if err != nil {
		return nil, err
	}
	if dial := cfg.dial(); dial != nil {
		c.ConnConfig.DialFunc = dial
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, err
	}
	return pglock.New(pool, pglock.Config{TTL: cfg.TTL, UnavailableAfter: cfg.Patience})
}

// silent keeps the library from printing which servers it cannot reach: that is the point.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func redisClients(p place, cfg Config) (all []*redis.Client, err error) {
	redis.SetLogger(silent{})
	database := 0
	if p.path != "" {
		if database, err = strconv.Atoi(p.path); err != nil {
			return nil, fmt.Errorf("the path must be the number of a database: %w", err)
		}
	}
	user, password := p.login()
	for _, host := range p.hosts {
		all = append(all, redis.NewClient(&redis.Options{
			Addr: host, DB: database, Username: user, Password: password, Dialer: cfg.dial(),
			DialerRetries:            1, // a server that is down is not dialled again within one call: the Locker tries again by itself
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	return all, nil
}

func openRedis(p place, cfg Config) (lockstep.Locker, error) {
	all, err := redisClients(p, cfg)
	if err != nil {
		return nil, err
	}
	return redislock.New(all[0], redislock.Config{TTL: cfg.TTL, UnavailableAfter: cfg.Patience})
}

func openRedlock(p place, cfg Config) (lockstep.Locker, error) {
	all, err := redisClients(p, cfg)
	if err != nil {
		return nil, err
	}
	return redlock.New(all, redlock.Config{TTL: cfg.TTL, UnavailableAfter: cfg.Patience})
}
