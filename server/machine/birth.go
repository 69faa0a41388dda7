package machine

import (
	"fmt"

	"github.com/lockstep-dev/lockstep/server/command"
)

func (m *Machine) setBirth(c *command.SetBirth) command.Result {
	if c.Birth == (command.BirthID{}) {
		return command.Result{Code: command.Malformed, Limit: "a birth must have an id"}
	}
	if m.limits.FeatureLevel < command.BirthLevel {
		limit := fmt.Sprintf("feature level: at least %d for a birth", command.BirthLevel)
		return command.Result{Code: command.OutOfRange, Limit: limit}
	}
	if m.birth == (command.BirthID{}) {
		m.birth = c.Birth
		m.hash = hashBytes(m.hash, c.Birth[:])
	}
	return command.Result{}
}

// Birth returns the cluster's birth id, zero if it has none yet.
func (m *Machine) Birth() command.BirthID { return m.birth }

// Rootless reports whether the cluster has, or may have, issued tokens without having a birth: it
// began at a feature level that has none.
func (m *Machine) Rootless() bool {
	return m.birth == (command.BirthID{}) && m.nextToken != 0 && !m.recovery.FloorDue
}
