//go:build unix

package supervise

import (
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

func TestWhichWaitsReachedTheService(t *testing.T) {
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
}

func TestAnErrorIsRetriedOnlyOnceTheServiceWasReached(t *testing.T) {
	mixed := &lockstep.OpError{Op: "acquire", Lock: "x", Err: &client.ClusterError{Endpoint: "n1:7400"}}
	for _, c := range []struct {
		reached bool
		err     error
		again   bool // what the candidate of package election would do
		want    bool
	}{
		{false, lockstep.ErrUnavailable, true, false},
		{true, lockstep.ErrUnavailable, true, true},
		{false, mixed, false, false},
		{true, mixed, false, true}, // the node of another cluster may go away
		{true, &lockstep.InvalidError{Field: "name"}, false, false},
	} {
		var reported []Event
		e := &candidacy{Holder: &Holder{claim: Claim{Report: func(e Event) { reported = append(reported, e) }}}, reached: c.reached}
		if got := e.retry(c.err, c.again); got != c.want || (len(reported) == 1) != c.want {
			t.Errorf("reached %v, %v: retries = %v, want %v; reported %v", c.reached, c.err, got, c.want, reported)
		}
	}
}
