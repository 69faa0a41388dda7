package sim

import (
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client/session"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/machine"
)

// The contract, the client and the lock table do not import each other, so each states these limits
// itself.
func TestClientsAndTheLockTableHaveTheSameLimits(t *testing.T) {
	limits := command.DefaultLimits()
	for _, l := range []struct {
		name            string
		contract, table uint64
	}{
		{"names of a claim", lockstep.MaxNames, command.MaxNames},
		{"permits", lockstep.MaxPermits, machine.MaxPermits},
		{"tokens", uint64(lockstep.MaxToken), uint64(command.MaxToken)},
		{"requests ahead of the floor", session.Window, uint64(limits.RequestWindow)},
	} {
		if l.contract != l.table {
			t.Errorf("%s: %d for clients, %d in the lock table", l.name, l.contract, l.table)
		}
	}
}
