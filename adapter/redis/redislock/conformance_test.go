package redislock_test

import (
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redislock"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
	"github.com/lockstep-dev/lockstep/locktest"
)

// Checks that restart the backend need promises that this one does not make: fault_test.go shows
// what a restart does.
func TestConformance(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	admin := connect(t, s.Address())
	locktest.Run(t, locktest.Backend{
		New: func(t *testing.T) lockstep.Locker { return wire(t, s.Address()) },
		Server: locktest.Server{
			Cut:  func(_ *testing.T, l lockstep.Locker) { l.(wired).proxy.Cut() },
			Heal: func(_ *testing.T, l lockstep.Locker) { l.(wired).proxy.Heal() },
			Delete: func(t *testing.T, name string) {
				key := open(t, admin, redislock.Config{}).Key(name)
				if err := admin.Del(t.Context(), key).Err(); err != nil {
					t.Fatal(err)
				}
			},
		},
	})
}
