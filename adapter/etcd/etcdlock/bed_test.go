package etcdlock_test

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
)

// TestMain lets more tests run in parallel than there are processors: most of them wait for leases.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func startCluster(t testing.TB, members int) *etcdserver.Cluster {
	t.Helper()
	c, err := etcdserver.Start(t.TempDir(), members)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// connect creates a client that quickly finds a server that was down.
func connect(t testing.TB, endpoints []string) *clientv3.Client {
	t.Helper()
	quick := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}
	cli, err := clientv3.New(clientv3.Config{
		Endpoints:         endpoints,
		Logger:            zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, // 10 s is gRPC's minimum
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: time.Second})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

// A seat is a Locker with its own client and network, all of which end with Close.
type seat struct {
	*etcdlock.Locker
	cli     *clientv3.Client
	proxies []*testbed.Proxy
}

// sit makes a Locker whose network can be cut.
func sit(t testing.TB, c *etcdserver.Cluster, cfg etcdlock.Config) *seat {
	t.Helper()
	s := &seat{}
	var endpoints []string
	for _, target := range c.Endpoints() {
		p, err := testbed.NewProxy(target)
		if err != nil {
			t.Fatal(err)
		}
		s.proxies = append(s.proxies, p)
		endpoints = append(endpoints, p.Address())
	}
	s.cli = connect(t, endpoints)
	var err error
	if s.Locker, err = etcdlock.New(s.cli, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func (s *seat) Close(ctx context.Context) error {
	err := s.Locker.Close(ctx)
	s.cli.Close()
	for _, p := range s.proxies {
		p.Close()
	}
	return err
}

func (s *seat) cut() {
	for _, p := range s.proxies {
		p.Cut()
	}
}

func (s *seat) heal() {
	for _, p := range s.proxies {
		p.Heal()
	}
}

// root is the prefix of the keys of a lock whose name has no other special character than "/".
func root(name string) string { return "lockstep/" + strings.ReplaceAll(name, "/", "%2F") + "/" }
