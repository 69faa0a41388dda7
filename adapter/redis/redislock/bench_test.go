package redislock_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

func BenchmarkFreeLock(b *testing.B) {
	s := startServer(b, redisserver.Config{})
	l := openOn(b, s)
	for b.Loop() {
		release(b, acquire(b, l, "job"))
	}
}

func BenchmarkFreeLocksFrom64(b *testing.B) {
	s := startServer(b, redisserver.Config{})
	l := openOn(b, s)
	names := make(chan string, 1024)
	for i := range cap(names) {
		names <- fmt.Sprintf("job/%d", i)
	}
	b.SetParallelism(32) // of 2 processors
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			name := <-names
			release(b, acquire(b, l, name))
			names <- name
		}
	})
}

// BenchmarkContended passes one lock from waiter to waiter: b.N grants on two Lockers with eight
// waiters each.
func BenchmarkContended(b *testing.B) {
	s := startServer(b, redisserver.Config{})
	lockers := []lockstep.Locker{openOn(b, s), openOn(b, s)}
	turns := make(chan struct{}, b.N)
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	done := make(chan struct{})
	for i := range 16 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range turns {
				k, err := lockers[i%2].Acquire(b.Context(), "job")
				if err != nil {
					b.Error(err)
					return
				}
				k.Release(b.Context())
			}
		}()
	}
	for range 16 {
		<-done
	}
}
