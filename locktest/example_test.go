package locktest_test

import (
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/locktest"
	"github.com/lockstep-dev/lockstep/memlock"
)

// The test of a backend. The space stands in for a server from which each Locker can be cut off.
func ExampleRun() {
	// In a file next to the backend: func TestConformance(t *testing.T) { ... }
	_ = func(t *testing.T) {
		space := memlock.NewSpace(memlock.WithTTL(time.Second))
		locktest.Run(t, locktest.Backend{
			New: func(t *testing.T) lockstep.Locker { return space.Locker() },
			Server: locktest.Server{
				Cut:  func(t *testing.T, l lockstep.Locker) { l.(*memlock.Locker).Cut() },
				Heal: func(t *testing.T, l lockstep.Locker) { l.(*memlock.Locker).Heal() },
			},
		})
	}
	// Output:
}
