package etcdlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
)

// A mishap befalls the next request that makes or ends a claim.
type mishap int

const (
	loseAnswer mishap = iota + 1 // it takes effect, but the reply is lost
	delay                        // it takes effect when deliver is called
)

// A line is a network that has mishaps.
type line struct {
	mu      sync.Mutex
	next    mishap
	delayed []func() error
}

var errLost = status.Error(codes.Unavailable, "the answer is lost")

func (l *line) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	txn, ok := req.(*pb.TxnRequest)
	if !ok || !slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool { return op.GetRequestRange() == nil }) {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	l.mu.Lock()
	what := l.next
	l.next = 0
	if what == delay {
		late := context.WithoutCancel(ctx)
		l.delayed = append(l.delayed, func() error { return invoke(late, method, req, new(pb.TxnResponse), cc, opts...) })
	}
	l.mu.Unlock()
	if what == delay {
		return errLost
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if what == loseAnswer {
		return errLost
	}
	return err
}

func (l *line) meet(m mishap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = m
}

// deliver lets the delayed requests arrive.
func (l *line) deliver(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.delayed) == 0 {
		t.Fatal("no request was delayed")
	}
	for _, send := range l.delayed {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	l.delayed = nil
}

// onLine creates a Locker whose requests go over a line with mishaps.
func onLine(t *testing.T, cfg etcdlock.Config) (*etcdlock.Locker, *clientv3.Client, *line) {
	t.Helper()
	c := startCluster(t, 1)
	l := &line{}
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.intercept)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	k, err := etcdlock.New(cli, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close(context.Background()) })
	return k, connect(t, c.Endpoints()), l
}

func keys(t *testing.T, cli *clientv3.Client, name string) int64 {
	t.Helper()
	answer, err := cli.Get(t.Context(), root(name), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return answer.Count
}

func TestAClaimWhoseAnswerIsLostIsFoundAgain(t *testing.T) {
	t.Parallel()
	l, admin, line := onLine(t, etcdlock.Config{TTL: 5 * time.Second})
	for name, opts := range map[string][]lockstep.AcquireOption{
		"waits": nil, "try": {lockstep.WithWait(0)}, "shared": {lockstep.WithShared()}, "shared-try": {lockstep.WithShared(), lockstep.WithWait(0)},
	} {
		line.meet(loseAnswer)
		k := acquire(t, l, name, opts...)
		if n := keys(t, admin, name); n != 1 {
			t.Errorf("%s: %d keys, want 1", name, n)
		}
		line.meet(loseAnswer)
		release(t, k)
		if n := keys(t, admin, name); n != 0 {
			t.Errorf("%s: %d keys after the release, want 0", name, n)
		}
	}
}

func TestAJoinWhoseAnswerIsLostGivesTheSameToken(t *testing.T) {
	t.Parallel()
	l, _, line := onLine(t, etcdlock.Config{TTL: 5 * time.Second})
	first := acquire(t, l, "x", lockstep.WithShared())
	line.meet(loseAnswer) // of the creation
	second := acquire(t, l, "x", lockstep.WithShared())
	if second.Token() != first.Token() {
		t.Errorf("tokens %d and %d of shared holders", first.Token(), second.Token())
	}
}

// The first creation request hangs somewhere, the second one works. When the first finally arrives,
// its claim is over, and a key that it created would hold the lock as long as the session lives.
func TestACreationThatArrivesAfterTheReleaseMakesNoKey(t *testing.T) {
	t.Parallel()
	l, admin, line := onLine(t, etcdlock.Config{TTL: 5 * time.Second})
	line.meet(delay)
	k := acquire(t, l, "x")
	line.deliver(t) // next to the key
	if err := k.Check(); err != nil || keys(t, admin, "x") != 1 {
		t.Errorf("check %v, %d keys, want 1", err, keys(t, admin, "x"))
	}
	release(t, k)

	line.meet(delay)
	other := acquire(t, l, "other")
	k = acquire(t, l, "x")
	release(t, other)
	line.deliver(t)
	if n := keys(t, admin, "other"); n != 0 {
		t.Errorf("%d keys appeared after the release", n)
	}
	if err := k.Check(); err != nil {
		t.Errorf("the session's other lock is lost: %v", err)
	}
	release(t, k)
	release(t, acquire(t, l, "other"))
}

func TestATryThatArrivesAfterItWasGivenUpMakesNoKey(t *testing.T) {
	t.Parallel()
	l, admin, line := onLine(t, etcdlock.Config{TTL: 5 * time.Second})
	held := acquire(t, l, "x")
	line.meet(delay)
	if _, err := lockstep.TryAcquire(t.Context(), l, "x"); !errors.Is(err, lockstep.ErrBusy) {
		t.Fatalf("try: %v, want ErrBusy", err)
	}
	release(t, held) // once this is done, earlier undos on this name are done as well
	release(t, acquire(t, l, "x"))
	until(t, "what the try left is undone", func() bool { return keys(t, admin, "x") == 0 })
	time.Sleep(200 * time.Millisecond)
	line.deliver(t)
	if n := keys(t, admin, "x"); n != 0 {
		t.Errorf("%d keys of a try that was given up", n)
	}
}
