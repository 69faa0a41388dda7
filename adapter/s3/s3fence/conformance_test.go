package s3fence_test

import (
	"context"
	"testing"

	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/fencetest"
)

// TestConformance gives each process its own client.
func TestConformance(t *testing.T) {
	s := startServer(t)
	cli, _ := dial(t, s.Endpoint())
	_, err := s3fence.Open(t.Context(), cli, "lockstep", s3fence.Config{})
	must(t, err)
	fencetest.Run(t, fencetest.Guard{
		Open: func(t *testing.T, name string) fencetest.Store { return open(t, s, name, s3fence.Config{}) },
		Crashes: []fencetest.Crash{
			{Moment: "data not sent", Write: dying(dieBeforeData)},
			{Moment: "data stored, manifest not sent", Write: dying(dieBetween)},
			{Moment: "manifest stored, answer not read", Write: dying(dieAfter)},
		},
		LoseReply: func(_ *testing.T, s fencetest.Store) { s.(*resource).line.meet(loseReply) },
		Restart:   func(t *testing.T) { must(t, s.Restart()) },
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
