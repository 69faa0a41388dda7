package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/memlock"
)

func TestResignHandsOverWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		stands := []*stand{run(t, space.Locker(), election.Config{}), run(t, space.Locker(), election.Config{})}
		for i := range 10 {
			leads, waits := stands[i%2], stands[1-i%2]
			ctx := <-leads.begun
			time.Sleep(time.Minute)
			resigned := time.Now()
			if err := leads.Resign(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !errors.Is(context.Cause(ctx), election.ErrResigned) {
				t.Errorf("cause %v, want ErrResigned", context.Cause(ctx))
			}
			if !waits.IsLeader() || leads.IsLeader() || time.Since(resigned) > time.Second {
				t.Errorf("no other leads %v after the resignation", time.Since(resigned))
			}
			if err := leads.Resign(); !errors.Is(err, election.ErrNotLeader) {
				t.Errorf("second Resign = %v, want ErrNotLeader", err)
			}
		}
	})
}

func TestTheBodyMayResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		c := candidate(t, l, election.Config{})
		terms := 0
		err := c.Run(t.Context(), func(ctx context.Context, _ lockstep.Token) error {
			if terms++; terms == 3 {
				return nil
			}
			if err := c.Resign(); err != nil || ctx.Err() == nil {
				t.Errorf("Resign = %v, context %v", err, ctx.Err())
			}
			if err := c.Resign(); !errors.Is(err, election.ErrNotLeader) {
				t.Errorf("Resign while the body drains = %v, want ErrNotLeader", err)
			}
			return ctx.Err()
		})
		if err != nil || terms != 3 {
			t.Errorf("Run = %v after %d terms", err, terms)
		}
	})
}

func TestStepDownStaysAwayForTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cooldown = 10 * time.Minute
		s := run(t, memlock.New(), election.Config{})
		<-s.begun
		time.Sleep(time.Hour)
		start := time.Now()
		if err := s.StepDown(cooldown); err != nil {
			t.Fatal(err)
		}
		<-s.begun
		if got := time.Since(start); got != cooldown {
			t.Errorf("leads again after %v, want %v", got, cooldown)
		}
		if err := s.StepDown(cooldown); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.cancel()
		start = time.Now()
		if err := <-s.ended; !errors.Is(err, context.Canceled) || time.Since(start) != 0 {
			t.Errorf("Run = %v %v after its context, in the cooldown", err, time.Since(start))
		}
	})
}

func TestALostTermIsFollowedByTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cooldown = 10 * time.Minute
		space := memlock.NewSpace()
		s := run(t, space.Locker(), election.Config{Cooldown: cooldown})
		<-s.begun
		time.Sleep(time.Hour)
		start := time.Now()
		space.Revoke("leader", "alice")
		<-s.begun
		if got := time.Since(start); got < cooldown || got > cooldown*6/5 {
			t.Errorf("leads again after %v, want %v to %v", got, cooldown, cooldown*6/5)
		}
	})
}

func TestStepDownRefusesWhatItCannotDo(t *testing.T) {
	c := candidate(t, memlock.New(), election.Config{})
	for _, cooldown := range []time.Duration{-1, lockstep.MaxWait + 1} {
		err := c.StepDown(cooldown)
		if invalid, ok := errors.AsType[*lockstep.InvalidError](err); !ok || invalid.Field != "cooldown" {
			t.Errorf("StepDown(%v) = %v, want an InvalidError of the cooldown", cooldown, err)
		}
	}
	if err := c.StepDown(time.Minute); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("StepDown = %v, want ErrNotLeader", err)
	}
}

// unordered is a Locker that declares that it has no queue, as polling ones do.
type unordered struct{ lockstep.Locker }

func (u unordered) Capabilities() lockstep.Capabilities {
	caps := u.Locker.Capabilities()
	caps.FIFO = false
	return caps
}

func TestWhoGivesUpALockWithoutAQueueGivesOthersAChance(t *testing.T) {
	for name, giveUp := range map[string]func(*stand, *memlock.Space){
		"resigned": func(s *stand, _ *memlock.Space) { s.Resign() },
		"revoked":  func(_ *stand, space *memlock.Space) { space.Revoke("leader", "alice") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const period = 3 * time.Second
				space := memlock.NewSpace()
				s := run(t, unordered{space.Locker()}, election.Config{RetryPeriod: period})
				<-s.begun
				time.Sleep(time.Hour)
				start := time.Now()
				giveUp(s, space)
				<-s.begun
				if got := time.Since(start); got != period {
					t.Errorf("stood again after %v, want %v", got, period)
				}
			})
		})
	}
}
