package locktest

import (
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

// memory is memlock as a backend under test.
func memory() Backend {
	space := memlock.NewSpace(memlock.WithTTL(time.Second))
	return Backend{
		New: func(*testing.T) lockstep.Locker { return space.Locker() },
		Server: Server{
			Cut:    func(_ *testing.T, l lockstep.Locker) { l.(*memlock.Locker).Cut() },
			Heal:   func(_ *testing.T, l lockstep.Locker) { l.(*memlock.Locker).Heal() },
			Delete: func(_ *testing.T, name string) { space.Delete(name) },
			Revoke: func(_ *testing.T, name, by string) { space.Revoke(name, by) },
		},
	}
}

func TestMemoryConforms(t *testing.T) { Run(t, memory()) }
