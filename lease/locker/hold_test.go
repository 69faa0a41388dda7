package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// The lease of the session continues after the release of one of its locks, and the claim is
// dropped in the store.
func TestAHeldGrantLivesAsLongAsItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		clock, state := bubbleClock{time.Now()}, lease.New(ttl)
		state.Confirm(0, state.Sending(0))
		session := locker.KeepLease(clock, state, func(context.Context) error { return nil })
		find := func() (*locker.Claim, locker.Grant, error) {
			found := &locker.Claim{AcquireConfig: lockstep.AcquireConfig{Names: []string{"job"}}, ID: "of the store"}
			return found, locker.Grant{Token: 7, Owner: "me", Lease: session}, nil
		}
		k, err := c.Hold(find)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * ttl)
		if err := k.Check(); err != nil || k.Token() != 7 || k.Name() != "job" {
			t.Errorf("check %v, token %d of %q", err, k.Token(), k.Name())
		}
		if err := k.Release(t.Context()); !errors.Is(err, lockstep.ErrLost) { // this store has no such claim
			t.Errorf("release: %v, want ErrLost", err)
		}
		if err := session.Check(); err != nil {
			t.Errorf("the session has ended with its lock: %v", err)
		}
		session.End(lockstep.ErrReleased)
	})
}

func TestNothingIsLookedForAfterClose(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := c.Hold(func() (*locker.Claim, locker.Grant, error) {
			t.Error("find was called")
			return nil, locker.Grant{}, lockstep.ErrUncertain
		})
		if !errors.Is(err, lockstep.ErrClosed) {
			t.Errorf("hold after close: %v, want ErrClosed", err)
		}
	})
}

func TestWhatWasSurrenderedCanBeUndone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *store) {
		c := opened(t, s)
		claim, _, err := c.Surrender(acquire(t, c))
		if err != nil || s.size() != 1 {
			t.Fatalf("%d records, err %v", s.size(), err)
		}
		c.Undo(claim)
		time.Sleep(time.Second)
		if s.size() != 0 {
			t.Errorf("%d records", s.size())
		}
	})
}
