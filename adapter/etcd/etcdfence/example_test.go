package etcdfence_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdfence"
	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/etcdserver"
)

// The locks and the data are in the same etcd. The previous holder of the lock is too late.
func Example() {
	err := withEtcd(func(cli *clientv3.Client) error {
		ctx := context.Background()
		locker, err := etcdlock.New(cli, etcdlock.Config{})
		if err != nil {
			return err
		}
		defer locker.Close(ctx)
		source, err := fence.For(locker, "prod", "billing/nightly")
		if err != nil {
			return err
		}
		guard, err := etcdfence.New(cli, etcdfence.Config{})
		if err != nil {
			return err
		}

		var old lockstep.Token
		for _, total := range []string{"99", "100"} {
			err := lockstep.Do(ctx, locker, "billing/nightly", func(ctx context.Context, token lockstep.Token) error {
				if err := guard.Enter(ctx, "total", source.Grant(token)); err != nil { // before the first read
					return err
				}
				if old == 0 {
					old = token
				}
				return guard.Write(ctx, "total", source.Grant(token), []byte(total))
			})
			fmt.Println("wrote", total, err)
		}
		err = guard.Write(ctx, "total", source.Grant(old), []byte("99"))
		fmt.Println("the late write is refused:", errors.Is(err, fence.ErrStale))
		total, err := guard.Read(ctx, "total")
		fmt.Printf("total: %s\n", total)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// wrote 99 <nil>
	// wrote 100 <nil>
	// the late write is refused: true
	// total: 100
}

// Your own keys are written in the transaction that checks the mark.
func ExampleGuard_Commit() {
	err := withEtcd(func(cli *clientv3.Client) error {
		ctx := context.Background()
		guard, err := etcdfence.New(cli, etcdfence.Config{})
		if err != nil {
			return err
		}
		route := func(token lockstep.Token, to string) error {
			grant := fence.Grant{Backend: "native:prod", Lock: "routing", Token: token}
			return guard.Commit(ctx, "routes", grant, fence.Write,
				clientv3.OpPut("routes/eu", to), clientv3.OpPut("routes/us", to), clientv3.OpDelete("routes/draft"))
		}
		fmt.Println(route(7, "blue"), route(8, "green"))
		fmt.Println("late:", errors.Is(route(7, "blue"), fence.ErrStale))
		answer, err := cli.Get(ctx, "routes/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range answer.Kvs {
			fmt.Printf("%s %s\n", kv.Key, kv.Value)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// <nil> <nil>
	// late: true
	// routes/eu green
	// routes/us green
}

// withEtcd calls f with a client of an etcd that stands in for yours.
func withEtcd(f func(*clientv3.Client) error) error {
	dir, err := os.MkdirTemp("", "etcdfence-example-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := etcdserver.Start(dir, 1)
	if err != nil {
		return err
	}
	defer c.Close()
	cli, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer cli.Close()
	return f(cli)
}
