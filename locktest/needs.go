package locktest

import (
	"reflect"

	"github.com/lockstep-dev/lockstep"
)

// A need returns what is missing for a check to apply, or nothing.
type need func(b Backend, probe lockstep.Locker) (missing string)

func (b Backend) missing(probe lockstep.Locker, c check) string {
	for _, n := range c.needs {
		if missing := n(b, probe); missing != "" {
			return missing
		}
	}
	return ""
}

// claims needs the backend to make a promise.
func claims(p promise) need {
	return func(_ Backend, probe lockstep.Locker) string {
		if p.of(probe.Capabilities()) {
			return ""
		}
		return "declared unsupported: " + p.name
	}
}

// implements needs an optional interface.
func implements[T any](_ Backend, probe lockstep.Locker) string {
	if _, ok := probe.(T); ok {
		return ""
	}
	return "not implemented: " + reflect.TypeFor[T]().Name()
}

func canCut(b Backend, _ lockstep.Locker) string {
	if b.Server.Cut != nil && b.Server.Heal != nil {
		return ""
	}
	return "the test cannot cut the network"
}

func canRestart(b Backend, _ lockstep.Locker) string {
	if b.Server.Restart != nil {
		return ""
	}
	return "the test cannot restart the backend"
}

func canDelete(b Backend, _ lockstep.Locker) string {
	if b.Server.Delete != nil {
		return ""
	}
	return "the test cannot delete records"
}

func canRevoke(b Backend, _ lockstep.Locker) string {
	if b.Server.Revoke != nil {
		return ""
	}
	return "the test cannot revoke locks"
}

// A promise is one flag of the capabilities.
type promise struct {
	name string
	of   func(lockstep.Capabilities) bool
}

var (
	fenced           = promise{"Fenced", func(c lockstep.Capabilities) bool { return c.Fenced }}
	fifo             = promise{"FIFO", func(c lockstep.Capabilities) bool { return c.FIFO }}
	shared           = promise{"Shared", func(c lockstep.Capabilities) bool { return c.Shared }}
	permits          = promise{"Permits", func(c lockstep.Capabilities) bool { return c.Permits }}
	multi            = promise{"Multi", func(c lockstep.Capabilities) bool { return c.Multi }}
	lockDelay        = promise{"LockDelay", func(c lockstep.Capabilities) bool { return c.LockDelay }}
	survivesFailover = promise{"SurvivesFailover", func(c lockstep.Capabilities) bool { return c.SurvivesFailover }}
	clockBound       = promise{"ClockBound", func(c lockstep.Capabilities) bool { return c.ClockBound }}

	promises = []promise{fenced, fifo, shared, permits, multi, lockDelay, survivesFailover, clockBound}
)

// claimsOf lists exactly the flags that the backends of this project must set. A backend that can
// do more or less must change this table, and the documentation with it.
var claimsOf = map[string]lockstep.Capabilities{
	"native": {
		Fenced: true, FIFO: true, Shared: true, Permits: true, Multi: true, LockDelay: true, SurvivesFailover: true,
	},
	"memory": {
		Fenced: true, FIFO: true, Shared: true, Permits: true, Multi: true, LockDelay: true,
	},
	"zookeeper": {Fenced: true, FIFO: true, Shared: true, SurvivesFailover: true},
	"etcd":      {Fenced: true, FIFO: true, Shared: true, SurvivesFailover: true},
	"postgres":  {Fenced: true, SurvivesFailover: true},
	"redlock":   {Fenced: true, ClockBound: true},
	"redis":     {ClockBound: true},
}
