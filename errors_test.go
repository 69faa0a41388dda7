package lockstep_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep"
)

var sentinels = []error{
	lockstep.ErrBusy, lockstep.ErrLost, lockstep.ErrReleased, lockstep.ErrDetached, lockstep.ErrUncertain,
	lockstep.ErrUnavailable, lockstep.ErrQuota, lockstep.ErrUnsupported, lockstep.ErrInvalid, lockstep.ErrMode,
	lockstep.ErrClosed, context.Canceled, context.DeadlineExceeded,
}

func TestEachErrorIsOneThing(t *testing.T) {
	for _, test := range []struct {
		err  error
		want error
		text string
	}{
		{&lockstep.BusyError{}, lockstep.ErrBusy, "lockstep: lock is busy"},
		{
			&lockstep.BusyError{Holders: []lockstep.Claim{{Owner: "s1", Metadata: map[string]string{"host": "h1", "pid": "7", "purpose": "x\ny", "secret": "no"}}}},
			lockstep.ErrBusy, `lockstep: lock is busy: held by s1 host="h1" pid="7" purpose="x\ny"`,
		},
		{&lockstep.LossError{Reason: lockstep.LeaseEnded}, lockstep.ErrLost, "lockstep: lock lost: lease ended"},
		{
			&lockstep.LossError{Reason: lockstep.Revoked, By: "alice", Detail: "stuck"},
			lockstep.ErrLost, "lockstep: lock lost: revoked by alice: stuck",
		},
		{&lockstep.InvalidError{Field: "ttl", Value: "0s", Rule: "must be 1s to 5m0s"}, lockstep.ErrInvalid, "lockstep: ttl 0s: must be 1s to 5m0s"},
		{&lockstep.InvalidError{Field: "names", Rule: "must differ"}, lockstep.ErrInvalid, "lockstep: names: must differ"},
		{
			&lockstep.OpError{Op: "acquire", Lock: "orders/42", Err: fmt.Errorf("%w: no leader", lockstep.ErrUnavailable)},
			lockstep.ErrUnavailable, "acquire orders/42: lockstep: backend unavailable: no leader",
		},
		{&lockstep.OpError{Op: "acquire", Lock: "a\x1b[2J", Err: lockstep.ErrQuota}, lockstep.ErrQuota, `acquire "a\x1b[2J": lockstep: limit reached`},
		{&lockstep.OpError{Op: "acquire", Lock: "a", Err: context.Canceled}, context.Canceled, "acquire a: context canceled"},
	} {
		if got := test.err.Error(); got != test.text {
			t.Errorf("message %q, want %q", got, test.text)
		}
		for _, other := range sentinels {
			if got, want := errors.Is(test.err, other), other == test.want; got != want {
				t.Errorf("errors.Is(%q, %q) = %v", test.err, other, got)
			}
		}
	}
}

func TestCauseIsFoundThroughWrapping(t *testing.T) {
	busy := &lockstep.BusyError{Position: 3}
	err := fmt.Errorf("run: %w", &lockstep.OpError{Op: "acquire", Lock: "a", Err: busy})
	if got, ok := errors.AsType[*lockstep.BusyError](err); !ok || got.Position != 3 {
		t.Errorf("got %+v, %v", got, ok)
	}
	if got, ok := errors.AsType[*lockstep.OpError](err); !ok || got.Op != "acquire" {
		t.Errorf("got %+v, %v", got, ok)
	}
}

// TestLossReasonsDiffer: a caller can distinguish the ways in which a lock ends, in code and in the
// message.
func TestLossReasonsDiffer(t *testing.T) {
	seen := map[string]lockstep.LossReason{}
	for reason := lockstep.LeaseEnded; reason <= lockstep.MaxHoldReached; reason++ {
		text := (&lockstep.LossError{Reason: reason}).Error()
		if other, ok := seen[text]; ok || strings.Contains(text, "LossReason(") {
			t.Errorf("reasons %d and %d read %q", reason, other, text)
		}
		seen[text] = reason
	}
	if got := lockstep.LossReason(0).String(); got != "LossReason(0)" {
		t.Errorf("no reason reads %q", got)
	}
}

func TestSafeToRetry(t *testing.T) {
	safe := map[error]bool{
		lockstep.ErrBusy: true, lockstep.ErrUnavailable: true, lockstep.ErrQuota: true,
		lockstep.ErrInvalid: true, lockstep.ErrUnsupported: true, lockstep.ErrMode: true,
	}
	for _, err := range append([]error{errors.New("unknown")}, sentinels...) {
		if got, want := lockstep.SafeToRetry(err), safe[err]; got != want {
			t.Errorf("SafeToRetry(%v) = %v", err, got)
		}
		wrapped := &lockstep.OpError{Op: "acquire", Lock: "a", Err: fmt.Errorf("x: %w", err)}
		if got, want := lockstep.SafeToRetry(wrapped), safe[err]; got != want {
			t.Errorf("SafeToRetry(%v) = %v", wrapped, got)
		}
	}
	for _, err := range []error{
		nil,
		errors.Join(lockstep.ErrUnavailable, lockstep.ErrUncertain),
		fmt.Errorf("%w: %w", lockstep.ErrUnavailable, context.Canceled),
	} {
		if lockstep.SafeToRetry(err) {
			t.Errorf("SafeToRetry(%v) = true", err)
		}
	}
}
