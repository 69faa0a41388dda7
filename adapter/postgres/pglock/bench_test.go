package pglock_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
)

// BenchmarkFree takes and releases a lock that no one else wants: two committed writes.
func BenchmarkFree(b *testing.B) {
	s, pooler := sharedServers(b)
	for name, address := range map[string]string{"direct": s.Address(), "behind a pooler": pooler.Address()} {
		b.Run(name, func(b *testing.B) {
			l := dial(b, address, pglock.Config{})
			for b.Loop() {
				release(b, hold(b, l, "bench/free"))
			}
		})
	}
}

// BenchmarkManyFree does the same for 8 locks per processor at the same time: PostgreSQL writes
// several commits to disk at once.
func BenchmarkManyFree(b *testing.B) {
	s, _ := sharedServers(b)
	var next atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		l := dial(b, s.Address(), pglock.Config{})
		lock := fmt.Sprintf("bench/many/%d", next.Add(1))
		for pb.Next() {
			release(b, hold(b, l, lock))
		}
	})
}

// BenchmarkHot passes one lock around among 8 goroutines that always want it, on 2 Lockers.
func BenchmarkHot(b *testing.B) {
	s, pooler := sharedServers(b)
	for name, address := range map[string]string{"direct": s.Address(), "behind a pooler": pooler.Address()} {
		b.Run(name, func(b *testing.B) {
			lockers := []*client{dial(b, address, pglock.Config{}), dial(b, address, pglock.Config{})}
			var next atomic.Int64
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				l := lockers[next.Add(1)%2]
				for pb.Next() {
					release(b, hold(b, l, "bench/hot"))
				}
			})
		})
	}
}
