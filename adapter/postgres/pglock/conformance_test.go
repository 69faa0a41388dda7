package pglock_test

import (
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/postgres/pglock"
	"github.com/lockstep-dev/lockstep/internal/testbed/pgserver"
	"github.com/lockstep-dev/lockstep/locktest"
)

func TestConformance(t *testing.T) {
	s, _ := sharedServers(t)
	conform(t, s, s.Address(), func(t *testing.T) {
		if err := s.Stop(pgserver.Fast); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestConformanceBehindAPooler(t *testing.T) {
	s, b := sharedServers(t)
	conform(t, s, b.Address(), func(t *testing.T) {
		b.Kill()
		s.Kill()
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
	})
}

// conform runs the suite with Lockers that connect to the address.
func conform(t *testing.T, s *pgserver.Server, address string, restart func(*testing.T)) {
	behind := openPool(t, s.Address())
	locktest.Run(t, locktest.Backend{
		New: func(t *testing.T) lockstep.Locker { return dial(t, address, pglock.Config{}) },
		Server: locktest.Server{
			Cut:     func(_ *testing.T, l lockstep.Locker) { l.(*client).proxy.Cut() },
			Heal:    func(_ *testing.T, l lockstep.Locker) { l.(*client).proxy.Heal() },
			Restart: restart,
			Delete: func(t *testing.T, name string) {
				if _, err := behind.Exec(t.Context(), "DELETE FROM lockstep_locks WHERE name = $1", name); err != nil {
					t.Fatal(err)
				}
			},
		},
	})
}
