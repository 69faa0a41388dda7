package client

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// Between checking a claim and the end of its wait its session may end, which discards what was
// known about the queue.
func TestAWaitThatRunsOutWhileItsSessionEndsIsBusy(t *testing.T) {
	k := newClaim(lockstep.AcquireConfig{Names: []string{"a"}, HasWait: true, Wait: time.Second})
	if err := k.busy(); !errors.Is(err, lockstep.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
}
