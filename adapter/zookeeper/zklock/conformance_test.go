package zklock_test

import (
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
	"github.com/lockstep-dev/lockstep/locktest"
)

func TestZooKeeperKeepsTheContract(t *testing.T) {
	e := startServers(t, 3, quick)
	warmUp(t, e.Addresses())
	op := newOperator(t, e.Addresses())
	locktest.Run(t, locktest.Backend{
		New:        func(t *testing.T) lockstep.Locker { return openCuttable(t, e.Addresses(), zklock.Config{}) },
		Goroutines: 200, // each needs two quorum writes, one after the other: 1000 would take a minute on two cores
		Slack:      5 * time.Second,
		Server: locktest.Server{
			Cut:  func(_ *testing.T, l lockstep.Locker) { l.(*cuttable).cut() },
			Heal: func(_ *testing.T, l lockstep.Locker) { l.(*cuttable).heal() },
			Restart: func(t *testing.T) {
				if err := e.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			Delete: func(_ *testing.T, name string) { op.deleteClaims(name) },
		},
	})
}

// warmUp uses each server a little. The first requests to a new one take seconds on a busy machine,
// and a try has no more time than a TTL.
func warmUp(t *testing.T, servers []string) {
	t.Helper()
	for i := range servers {
		l := open(t, zklock.Config{Servers: servers[i : i+1]})
		for range 5 {
			mustRelease(t, mustAcquire(t, l, "conformance/warm"))
		}
	}
}
