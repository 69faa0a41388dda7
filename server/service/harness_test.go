package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/node"
	"github.com/lockstep-dev/lockstep/server/protocol"
	"github.com/lockstep-dev/lockstep/server/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the waits of a test on a busy machine. Nothing takes nearly that long.
const patience = 30 * time.Second

// A cluster is a set of real nodes with their services, on loopback, with disks in memory.
type cluster struct {
	t     testing.TB
	nodes []*member
}

type member struct {
	*node.Node
	service *service.Service
	address string
	stop    func() // stops the service, then the node, and waits
}

type clusterOptions struct {
	nodes   int
	limits  service.Limits
	machine command.Limits

	sessionsPerAddress int
}

func startCluster(t testing.TB, o clusterOptions) *cluster {
	t.Helper()
	c := &cluster{t: t}
	peers, members := make([]net.Listener, o.nodes), map[string]string{}
	for i := range peers {
		peers[i] = listen(t)
		members[fmt.Sprintf("n%d", i+1)] = peers[i].Addr().String()
	}
	for i := range peers {
		c.nodes = append(c.nodes, startMember(t, fmt.Sprintf("n%d", i+1), peers[i], members, o))
	}
	t.Cleanup(func() {
		var all sync.WaitGroup
		for _, m := range c.nodes {
			all.Go(m.stop)
		}
		all.Wait()
	})
	return c
}

func secrets() [][]byte { return [][]byte{[]byte("0123456789abcdef0123456789abcdef")} }

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// logger shows the log of tests run with LOCKSTEP_TEST_LOG=1.
func logger() *slog.Logger {
	if os.Getenv("LOCKSTEP_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

func startMember(t testing.TB, name string, peer net.Listener, members map[string]string, o clusterOptions) *member {
	t.Helper()
	clients, feed := listen(t), service.NewFeed()
	n, err := node.New(node.Config{
		Name: name, DataDir: filepath.Join("/data", name), FS: vfs.NewMem(), Members: members,
		ClientAddress: clients.Addr().String(), Listener: peer, Limits: o.machine, Events: feed.Add, Logger: logger().With("node", name),
		SessionsPerAddress: o.sessionsPerAddress, Secrets: secrets,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := service.New(service.Config{
		Node: n, Feed: feed, Listener: clients, ClusterSecrets: secrets, Version: "test", Limits: o.limits, Logger: logger().With("node", name),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{Node: n, service: s, address: clients.Addr().String()}
	m.stop = run(t, n.Run, s.Run)
	return m
}

// run starts parts, the later ones in front of the earlier. The returned function stops them from
// front to back, and may be called twice.
func run(t testing.TB, parts ...func(context.Context) error) (stop func()) {
	var stops []func()
	for _, part := range parts {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- part(ctx) }()
		stops = append(stops, func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("a part ended with %v", err)
			}
		})
	}
	return sync.OnceFunc(func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
	})
}

// eventually waits until f returns nil.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v still: %v", patience, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// leader waits until one node serves, and all know which one and their cluster.
func (c *cluster) leader() *member {
	c.t.Helper()
	var found *member
	eventually(c.t, func() error {
		found = nil
		for _, m := range c.nodes {
			st := m.Status()
			if !service.Ready(st) || st.LeaderClientAddress == "" || st.ClusterID == "" {
				return fmt.Errorf("%s is not ready: %+v", st.Name, st)
			}
			if st.Serving {
				found = m
			}
		}
		if found == nil {
			return fmt.Errorf("nobody serves")
		}
		return nil
	})
	return found
}

func (c *cluster) follower() *member {
	leader := c.leader()
	for _, m := range c.nodes {
		if m != leader {
			return m
		}
	}
	panic("a cluster of one has no follower")
}

// startNode starts a cluster of one and returns it when it serves.
func startNode(t testing.TB) *member {
	t.Helper()
	return startCluster(t, clusterOptions{nodes: 1}).leader()
}

func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func locks(t testing.TB, m *member) pb.LockServiceClient {
	return pb.NewLockServiceClient(dial(t, m.address))
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// wantReason checks the reason of a gRPC error.
func wantReason(t *testing.T, err error, want pb.Reason) *pb.Error {
	t.Helper()
	e := protocol.FromErr(err)
	if e.GetReason() != want {
		t.Fatalf("got the error %v (%v), want %v", err, e.GetReason(), want)
	}
	return e
}
