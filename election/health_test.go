package election_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/memlock"
)

func wantHealth(t *testing.T, c *election.Candidate, want string) {
	t.Helper()
	err := c.Healthy()
	switch {
	case want == "" && err != nil:
		t.Errorf("health %v, want nil", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("health %v, want %q", err, want)
	}
}

func TestALeaderThatCannotRenewIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		s := runWith(t, l, election.Config{RenewDeadline: 6 * time.Second}, func(ctx context.Context, _ lockstep.Token) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		})
		time.Sleep(time.Hour)
		wantHealth(t, s.Candidate, "")
		l.Cut()
		time.Sleep(4600 * time.Millisecond) // the midpoint between TTL/3 and 6 s is 4.667 s
		wantHealth(t, s.Candidate, "")
		time.Sleep(100 * time.Millisecond)
		wantHealth(t, s.Candidate, "the last renewal was 4.7s ago")
		l.Heal()
		wantHealth(t, s.Candidate, "")
		l.Cut()
		time.Sleep(6*time.Second + time.Millisecond)
		wantHealth(t, s.Candidate, "could not renew: election: lease not renewed within the renew deadline")
		time.Sleep(time.Second) // the body has returned
		wantHealth(t, s.Candidate, "")
	})
}

func TestABodyThatOverrunsItsDrainIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		s := runWith(t, memlock.New(), election.Config{Drain: 2 * time.Second}, func(context.Context, lockstep.Token) error {
			<-wake
			return nil
		})
		s.cancel()
		time.Sleep(2 * time.Second)
		wantHealth(t, s.Candidate, "")
		time.Sleep(time.Second)
		wantHealth(t, s.Candidate, "the body has not returned 3s after the end of its term, drain is 2s: context canceled")
		close(wake)
		<-s.ended
		wantHealth(t, s.Candidate, "")
	})
}

func TestACandidateThatDoesNotLeadIsHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		leads := run(t, space.Locker(), election.Config{})
		l := space.Locker()
		waits := run(t, l, election.Config{})
		l.Cut()
		time.Sleep(time.Hour)
		wantHealth(t, waits.Candidate, "")
		leads.cancel()
		waits.cancel()
		<-waits.ended
		wantHealth(t, waits.Candidate, "")
	})
}
