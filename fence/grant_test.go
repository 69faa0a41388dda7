package fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/memlock"
)

// millisecondTokens is a backend that derives its tokens from the client's clock, in milliseconds,
// as libraries for single-key Redis locks have done: the clocks of two clients differ, and clocks
// get set back. It declares that its tokens are not fencing tokens.
type millisecondTokens struct{ lockstep.Locker }

func (m millisecondTokens) Capabilities() lockstep.Capabilities {
	caps := m.Locker.Capabilities()
	caps.Backend, caps.Fenced = "milliseconds", false
	return caps
}

// Such tokens break a guard: a holder whose clock is ahead locks out the next, and a later holder's
// token is not larger. So they cannot get a grant.
func TestTokensOfAClockAreRefusedAtTheStart(t *testing.T) {
	source, err := fence.For(millisecondTokens{memlock.New()}, "prod", "orders/42")
	if !errors.Is(err, lockstep.ErrUnsupported) || !strings.Contains(err.Error(), "milliseconds") {
		t.Errorf("error %v, want ErrUnsupported with the backend's name", err)
	}
	guard := fence.NewMemory(0)
	if err := guard.Admit(t.Context(), "orders", source.Grant(1_700_000_000_123), fence.Write); !fence.Refused(err) {
		t.Errorf("the source that came with the error: %v, want a refusal", err)
	}
}
