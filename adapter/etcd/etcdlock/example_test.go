package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
)

// Two processes share a lock. Each has its own client and Locker.
func Example() {
	err := withEtcd(func(endpoints []string) error {
		cli, err := clientv3.New(clientv3.Config{
			Endpoints: endpoints,
			// Without keepalives no one notices a connection that died silently.
			DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
			Logger: zap.NewNop(),
		})
		if err != nil {
			return err
		}
		defer cli.Close()
		return share(context.Background(), cli)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// etcd keeps its holders apart
	// busy: true, held by the job on web-1
	// the token has risen: true
}

func share(ctx context.Context, cli *clientv3.Client) error {
	mine, err := etcdlock.New(cli, etcdlock.Config{TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	defer mine.Close(ctx)
	theirs, err := etcdlock.New(cli, etcdlock.Config{TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	defer theirs.Close(ctx)

	first, err := mine.Acquire(ctx, "billing/nightly", lockstep.WithMetadata(map[string]string{"host": "web-1"}))
	if err != nil {
		return err
	}
	fmt.Println(mine.Capabilities().Backend, "keeps its holders apart")

	_, err = lockstep.TryAcquire(ctx, theirs, "billing/nightly")
	if busy, ok := errors.AsType[*lockstep.BusyError](err); ok {
		fmt.Printf("busy: %v, held by the job on %s\n", errors.Is(err, lockstep.ErrBusy), busy.Holders[0].Metadata["host"])
	}
	if err := first.Release(ctx); err != nil {
		return err
	}
	return lockstep.Do(ctx, theirs, "billing/nightly", func(_ context.Context, token lockstep.Token) error {
		fmt.Println("the token has risen:", token > first.Token())
		return nil
	})
}

// withEtcd calls f with the endpoints of an etcd that is stopped afterwards.
func withEtcd(f func(endpoints []string) error) error {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := etcdserver.Start(dir, 1)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c.Endpoints())
}
