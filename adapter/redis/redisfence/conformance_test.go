package redisfence_test

import (
	"context"
	"testing"

	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fencetest"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

// TestConformance gives each process its own client, on a server that keeps what it has confirmed.
func TestConformance(t *testing.T) {
	s := startServer(t, redisserver.Config{Persistence: redisserver.AppendAlways})
	fencetest.Run(t, fencetest.Guard{
		Open: func(t *testing.T, name string) fencetest.Store { return open(t, s.Address(), name, -1) },
		Crashes: []fencetest.Crash{
			{Moment: "script not sent", Write: dying(dieBefore)},
			{Moment: "script run, reply not read", Write: dying(dieAfter)},
		},
		LoseReply: func(_ *testing.T, s fencetest.Store) { s.(*resource).line.meet(loseReply) },
		Restart: func(t *testing.T) {
			s.Kill()
			must(t, s.Start())
		},
	})
}

// dying is a writer that dies at its first write.
func dying(m mishap) func(*testing.T, fencetest.Store, fence.Grant, []byte) {
	return func(t *testing.T, s fencetest.Store, g fence.Grant, value []byte) {
		r := s.(*resource)
		if _, err := r.Guard.Mark(t.Context(), r.name); err != nil {
			t.Fatal(err)
		}
		must(t, r.Admit(t.Context(), "dying/"+r.name, g, fence.Enter)) // so that its server is known
		r.line.meet(m)
		if err := s.Write(context.Background(), g, value); err == nil || fence.Refused(err) {
			t.Errorf("the write did not die: %v", err)
		}
	}
}
