package zklock_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
)

// BenchmarkAcquire measures one client taking and releasing one lock, by number of servers.
func BenchmarkAcquire(b *testing.B) {
	for _, servers := range []int{1, 3} {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			e := startServers(b, servers)
			l := open(b, zklock.Config{Servers: e.Addresses()})
			for b.Loop() {
				lock, err := l.Acquire(b.Context(), "bench/one")
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHandOver measures the grants of a lock that 32 goroutines of one client want.
func BenchmarkHandOver(b *testing.B) {
	e := startServers(b, 3)
	l := open(b, zklock.Config{Servers: e.Addresses()})
	b.ResetTimer()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			lock, err := l.Acquire(b.Context(), "bench/wanted")
			if err != nil {
				b.Fatal(err)
			}
			if err := lock.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
