//go:build unix

package supervise

import (
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

func TestWhichWaitingHasReachedTheService(t *testing.T) {
	const s = time.Second
	down := &lockstep.OpError{Op: "acquire", Lock: "x", Err: lockstep.ErrUnavailable}
	mixed := &lockstep.OpError{Op: "acquire", Lock: "x", Err: &client.ClusterError{Endpoint: "n1:7400"}}
	for _, c := range []struct {
		err  error
		took time.Duration
		want bool
	}{
		{nil, 0, true},
		{lockstep.ErrQuota, 0, true},
		{down, 0, false},
		{down, 11 * s, false},
		{down, 11*s + 1, true},
		{mixed, 0, false},
		{mixed, 11*s + 1, true},
	} {
		if got := reaches(c.err, c.took, 10*s); got != c.want {
			t.Errorf("%v after %v: %v, want %v", c.err, c.took, got, c.want)
		}
	}
	if !passes(mixed) || passes(&lockstep.InvalidError{Field: "name"}) {
		t.Error("want that a node of another cluster may go, and a bad name may not")
	}
}
