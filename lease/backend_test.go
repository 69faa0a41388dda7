package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep/lease"
)

func TestASleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !lease.Sleep(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("slept %v, want a minute", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if lease.Sleep(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("slept %v with a second left", time.Since(began))
		}
		if lease.Sleep(ctx, 0) || !lease.Sleep(t.Context(), 0) {
			t.Error("no wait reports the state of the context")
		}
	})
}

func TestPatienceIsTheTTLWithinBounds(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second: 5 * time.Second, 10 * time.Second: 10 * time.Second, time.Minute: 15 * time.Second,
	} {
		if got := lease.Patience(ttl); got != want {
			t.Errorf("%v for a TTL of %v, want %v", got, ttl, want)
		}
	}
}

func TestACallWithADoneContextHasTimeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		live, end := lease.WithOwnTime(ctx)
		cancel()
		if live.Err() == nil {
			t.Error("a live context does not end with its parent")
		}
		end()
		own, end := lease.WithOwnTime(ctx)
		defer end()
		if deadline, ok := own.Deadline(); own.Err() != nil || !ok || time.Until(deadline) != 5*time.Second || own.Value(key{}) != "value" {
			t.Errorf("%v, value %v, want 5 s and the value", own, own.Value(key{}))
		}
	})
}
