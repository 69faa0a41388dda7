package redislock_test

import (
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redislock"
	"github.com/lockstep-dev/lockstep/adapter/redis/redisserver"
	"github.com/lockstep-dev/lockstep/locktest"
)

func TestConformance(t *testing.T) {
	s := startServer(t, redisserver.Config{Persistence: redisserver.AppendAlways})
	admin := connect(t, s.Address())
	locktest.Run(t, locktest.Backend{
		New: func(t *testing.T) lockstep.Locker { return wire(t, s.Address()) },
		Server: locktest.Server{
			Cut:  func(_ *testing.T, l lockstep.Locker) { l.(wired).proxy.Cut() },
			Heal: func(_ *testing.T, l lockstep.Locker) { l.(wired).proxy.Heal() },
			Restart: func(t *testing.T) {
				s.Kill()
				if err := s.Start(); err != nil {
					t.Fatal(err)
				}
			},
			Delete: func(t *testing.T, name string) {
				key := open(t, admin, redislock.Config{}).Key(name)
				if err := admin.Del(t.Context(), key).Err(); err != nil {
					t.Fatal(err)
				}
			},
		},
	})
}
