package etcdfence_test

import (
	"context"
	"testing"

	"github.com/lockstep-dev/lockstep/adapter/etcd/etcdfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fencetest"
)

// TestConformance gives each process its own client.
func TestConformance(t *testing.T) {
	c := startCluster(t)
	fencetest.Run(t, fencetest.Guard{
		Open: func(t *testing.T, name string) fencetest.Store { return open(t, c, name, etcdfence.Config{}) },
		Crashes: []fencetest.Crash{
			{Moment: "transaction not sent", Write: dying(dieBefore)},
			{Moment: "transaction made, answer not read", Write: dying(dieAfter)},
		},
		LoseReply: func(_ *testing.T, s fencetest.Store) { s.(*resource).line.meet(loseReply) },
		Restart:   func(t *testing.T) { must(t, c.Restart()) },
	})
}

// dying is a writer that dies at its first write.
func dying(m mishap) func(*testing.T, fencetest.Store, fence.Grant, []byte) {
	return func(t *testing.T, s fencetest.Store, g fence.Grant, value []byte) {
		s.(*resource).line.meet(m)
		if err := s.Write(context.Background(), g, value); err == nil || fence.Refused(err) {
			t.Errorf("the write did not die: %v", err)
		}
	}
}
