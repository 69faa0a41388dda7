package etcdfence_test

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startCluster(t testing.TB) *etcdserver.Cluster {
	t.Helper()
	c, err := etcdserver.Start(t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A mishap befalls the next transaction that may write.
type mishap int

const (
	loseReply mishap = iota + 1 // it takes effect, but the reply is lost
	dieBefore                   // the process dies before it sends the transaction
	dieAfter                    // the process dies after etcd has executed it
)

var errLost = status.Error(codes.DataLoss, "the answer is lost") // a code that the client does not retry

// A line is the network of one client.
type line struct {
	mu    sync.Mutex
	next  mishap
	dead  bool
	count int // transactions
}

func (l *line) meet(m mishap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = m
}

// transactions is how many went over the line since the last call.
func (l *line) transactions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.count
	l.count = 0
	return n
}

// begin decides what happens to a request.
func (l *line) begin(req any) (met mishap, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := req.(*pb.TxnRequest); ok && !l.dead {
		l.count++
		met, l.next = l.next, 0
		l.dead = met == dieBefore || met == dieAfter
		return met, met == dieBefore
	}
	return 0, l.dead
}

func (l *line) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	met, dead := l.begin(req)
	if dead {
		return errLost
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if txn, ok := reply.(*pb.TxnResponse); ok && met != 0 && err == nil {
		if !txn.Succeeded { // it found no mark: the next one writes
			l.mu.Lock()
			l.next, l.dead = met, false
			l.mu.Unlock()
			return nil
		}
		return errLost
	}
	return err
}

// A resource is one process's view of a resource.
type resource struct {
	*etcdfence.Guard
	name string
	line *line
	cli  *clientv3.Client
}

func open(t testing.TB, c *etcdserver.Cluster, name string, cfg etcdfence.Config) *resource {
	t.Helper()
	l := &line{}
	quick := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(l.intercept),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: time.Second}),
		},
	})
	must(t, err)
	t.Cleanup(func() { cli.Close() })
	g, err := etcdfence.New(cli, cfg)
	must(t, err)
	return &resource{Guard: g, name: name, line: l, cli: cli}
}

func (r *resource) Enter(ctx context.Context, g fence.Grant) error {
	return r.Guard.Enter(ctx, r.name, g)
}

func (r *resource) Read(ctx context.Context) ([]byte, error) { return r.Guard.Read(ctx, r.name) }

func (r *resource) Write(ctx context.Context, g fence.Grant, value []byte) error {
	return r.Guard.Write(ctx, r.name, g, value)
}

func (r *resource) WriteOnce(ctx context.Context, g fence.Grant, value []byte) error {
	return r.Guard.WriteOnce(ctx, r.name, g, value)
}

func (r *resource) Delete(ctx context.Context, g fence.Grant) error {
	return r.Guard.Delete(ctx, r.name, g)
}

func grant(token lockstep.Token) fence.Grant {
	return fence.Grant{Backend: "etcd:test", Lock: "reports", Token: token}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
