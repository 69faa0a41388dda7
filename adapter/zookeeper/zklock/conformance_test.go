package zklock_test

import (
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
	"github.com/lockstep-dev/lockstep/locktest"
)

func TestZooKeeperKeepsTheContract(t *testing.T) {
	e := startServers(t, 3, quick)
	op := newOperator(t, e.Addresses())
	locktest.Run(t, locktest.Backend{
		New:        func(t *testing.T) lockstep.Locker { return openCuttable(t, e.Addresses(), zklock.Config{}) },
		Goroutines: 200, // each needs two writes of a quorum, one after the other: 1000 would take a minute on two cores
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
