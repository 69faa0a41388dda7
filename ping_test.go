package lockstep_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/memlock"
)

// A mute Locker can do nothing but lock.
type mute struct{ lockstep.Locker }

// An unreachable Locker has a backend that does not answer.
type unreachable struct{ lockstep.Locker }

func (unreachable) Inspect(context.Context, string) (lockstep.State, error) {
	return lockstep.State{}, lockstep.ErrUnavailable
}

func TestPingSaysWhetherTheBackendServes(t *testing.T) {
	for _, c := range []struct {
		locker lockstep.Locker
		want   error
	}{
		{memlock.New(), nil},
		{unreachable{memlock.New()}, lockstep.ErrUnavailable},
		{mute{memlock.New()}, lockstep.ErrUnsupported},
	} {
		if err := lockstep.Ping(t.Context(), c.locker); !errors.Is(err, c.want) {
			t.Errorf("%T: %v, want %v", c.locker, err, c.want)
		}
	}
}
