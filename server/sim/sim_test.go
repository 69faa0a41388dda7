package sim

import (
	"testing"
	"time"
)

func TestCalmClusterServes(t *testing.T) {
	r := Run(Options{Seed: 1, Calm: true, Duration: 10 * time.Second})
	if r.Failure != nil {
		for _, l := range r.Failure.Trace {
			t.Log(l)
		}
		t.Fatalf("%v: %s", r.Failure.Promise, r.Failure.Detail)
	}
	t.Logf("%+v", r)
}
