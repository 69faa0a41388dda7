package etcdlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdlock"
)

// BenchmarkFree takes and releases a lock that no one else wants: two transactions.
func BenchmarkFree(b *testing.B) {
	for _, members := range []int{1, 3} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			l := benchLocker(b, connect(b, startCluster(b, members).Endpoints()))
			cycle(b, l, "x")
			for b.Loop() {
				cycle(b, l, "x")
			}
		})
	}
}

// BenchmarkHandOver has 10 claims waiting for one lock, so that each operation is one hand-over.
func BenchmarkHandOver(b *testing.B) {
	l := benchLocker(b, connect(b, startCluster(b, 3).Endpoints()))
	cycle(b, l, "x")
	work := make(chan struct{})
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range work {
				cycle(b, l, "x")
			}
		})
	}
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	group.Wait()
}

func cycle(b *testing.B, l *etcdlock.Locker, name string) {
	k, err := l.Acquire(context.Background(), name)
	if err == nil {
		err = k.Release(context.Background())
	}
	if err != nil {
		b.Error(err)
	}
}

func benchLocker(b *testing.B, cli *clientv3.Client) *etcdlock.Locker {
	b.Helper()
	l, err := etcdlock.New(cli, etcdlock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close(context.Background()) })
	return l
}
