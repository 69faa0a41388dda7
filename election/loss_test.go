package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/memlock"
)

func TestALeaderThatIsCutOffStepsDownInTimeToDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		a, b := space.Locker(), space.Locker()
		const drain = 4 * time.Second
		var cause error
		var over, returned time.Time
		first := runWith(t, a, election.Config{Drain: drain}, func(ctx context.Context, _ lockstep.Token) error {
			<-ctx.Done()
			cause, over = context.Cause(ctx), time.Now()
			time.Sleep(drain)
			returned = time.Now()
			return errWork
		})
		second := run(t, b, election.Config{})
		cut := time.Now()
		a.Cut()
		<-second.begun
		began := time.Now()

		if !errors.Is(cause, election.ErrNotRenewed) {
			t.Errorf("cause %v, want ErrNotRenewed", cause)
		}
		if got, want := over.Sub(cut), ttl-lease.Margin(ttl)-drain; got != want {
			t.Errorf("the term was over %v after the cut, want %v", got, want)
		}
		if !returned.Before(began) {
			t.Errorf("the body returned at %v after the cut, the next began at %v", returned.Sub(cut), began.Sub(cut))
		}
		if got, want := began.Sub(cut), ttl+memlock.Grace+time.Second; got > want {
			t.Errorf("the next leader began %v after the cut, want at most %v", got, want)
		}
		first.cancel()
		second.cancel()
		if err := <-first.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want Canceled: the error of a term that was lost ends nothing", err)
		}
	})
}

func TestAShortOutageEndsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		s := run(t, l, election.Config{})
		ctx := <-s.begun
		for range 10 {
			l.Cut()
			time.Sleep(ttl/2 + ttl/10)
			l.Heal()
		}
		time.Sleep(time.Hour)
		if ctx.Err() != nil || !s.IsLeader() {
			t.Errorf("the term is over: %v", context.Cause(ctx))
		}
	})
}

func TestACandidateStandsAgainAfterEachLoss(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*memlock.Space, *memlock.Locker)
		want lockstep.LossReason
	}{
		"expiry":     {func(_ *memlock.Space, l *memlock.Locker) { l.Expire() }, lockstep.SessionExpired},
		"revocation": {func(s *memlock.Space, _ *memlock.Locker) { s.Revoke("leader", "alice") }, lockstep.Revoked},
		"deletion":   {func(s *memlock.Space, _ *memlock.Locker) { s.Delete("leader") }, lockstep.RecordMissing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space := memlock.NewSpace()
				l := space.Locker()
				s := run(t, l, election.Config{})
				for range 5 {
					ctx := <-s.begun
					time.Sleep(time.Minute)
					lost := time.Now()
					c.lose(space, l)
					<-ctx.Done()
					if loss, ok := errors.AsType[*lockstep.LossError](context.Cause(ctx)); !ok || loss.Reason != c.want {
						t.Errorf("cause %v, want %v", context.Cause(ctx), c.want)
					}
					synctest.Wait()
					if !s.IsLeader() || time.Since(lost) > 0 {
						t.Errorf("not leading again at once after a term of a minute")
					}
				}
			})
		})
	}
}

func TestACandidateThatIsHealedStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		s := run(t, l, election.Config{})
		<-s.begun
		l.Cut()
		time.Sleep(time.Minute)
		if s.IsLeader() {
			t.Error("leads while it is cut off")
		}
		l.Heal()
		<-s.begun
		if !s.IsLeader() {
			t.Error("does not lead after it was healed")
		}
	})
}

// Terms that keep ending at once must not become a busy loop.
func TestTermsBeginARetryPeriodApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period = time.Second
		l := memlock.New()
		var began []time.Time
		s := runWith(t, l, election.Config{RetryPeriod: period}, func(ctx context.Context, _ lockstep.Token) error {
			began = append(began, time.Now())
			l.Expire()
			return nil // it finished, but not as leader
		})
		time.Sleep(time.Minute)
		s.cancel()
		<-s.ended
		for i := 1; i < len(began); i++ {
			if apart := began[i].Sub(began[i-1]); apart != period {
				t.Fatalf("terms began %v apart, want %v", apart, period)
			}
		}
		if len(began) < 59 {
			t.Errorf("%d terms in a minute, want one each second", len(began))
		}
	})
}

// The context reports that the term is over before any timer or goroutine does.
func TestTheContextKnowsALossAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		s := runWith(t, l, election.Config{}, func(ctx context.Context, token lockstep.Token) error {
			if token > 1 {
				return nil
			}
			l.Expire()
			if ctx.Err() == nil || !errors.Is(context.Cause(ctx), lockstep.ErrLost) {
				t.Errorf("err %v, cause %v right after the loss", ctx.Err(), context.Cause(ctx))
			}
			return nil
		})
		if err := <-s.ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// late is a Locker whose locks are over by the time they are handed out.
type late struct {
	*memlock.Locker
	times int
}

func (l *late) Acquire(ctx context.Context, name string, opts ...lockstep.AcquireOption) (lockstep.Lock, error) {
	lock, err := l.Locker.Acquire(ctx, name, opts...)
	if l.times--; err == nil && l.times >= 0 {
		l.Expire()
	}
	return lock, err
}

func TestNoBodyIsCalledForAGrantThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &late{Locker: memlock.New(), times: 3}
		s := runWith(t, l, election.Config{}, func(ctx context.Context, token lockstep.Token) error {
			if ctx.Err() != nil || token != 4 {
				t.Errorf("body called with token %d and context %v", token, ctx.Err())
			}
			return nil
		})
		if err := <-s.ended; err != nil || len(s.begun) != 1 {
			t.Errorf("Run = %v after %d terms", err, len(s.begun))
		}
	})
}

func TestABodyThatHangsKeepsTheLockAndItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		l := space.Locker()
		wake := make(chan struct{})
		s := runWith(t, l, election.Config{}, func(ctx context.Context, token lockstep.Token) error {
			if token == 1 {
				<-wake
			}
			<-ctx.Done()
			return nil
		})
		other := run(t, space.Locker(), election.Config{})
		<-s.begun
		if err := s.Resign(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s.IsLeader() || len(s.begun) != 0 || len(other.begun) != 0 {
			t.Errorf("leader %v, %d further terms here, %d elsewhere while the body hangs", s.IsLeader(), len(s.begun), len(other.begun))
		}
		close(wake)
		synctest.Wait()
		if len(other.begun) != 1 {
			t.Error("nobody leads after the body has returned")
		}
	})
}

// A leader that is frozen beyond its lease wakes up while its successor leads. The resource
// recognizes its old token; it leads again only after its body has returned.
func TestALeaderThatWasFrozenIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		l := space.Locker()
		guard := &ledger{}
		late := make(chan error, 1)
		frozen := runWith(t, l, election.Config{Drain: time.Second}, func(ctx context.Context, token lockstep.Token) error {
			if token > 1 {
				<-ctx.Done()
				return nil
			}
			invoice, err := guard.next(token)
			if err != nil {
				t.Error(err)
			}
			time.Sleep(3 * ttl) // frozen: it does not see its context
			err = guard.finish(token, invoice)
			late <- err
			return err
		})
		other := runWith(t, space.Locker(), election.Config{}, func(ctx context.Context, token lockstep.Token) error {
			invoice, err := guard.next(token)
			if err == nil {
				err = guard.finish(token, invoice)
			}
			if err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return nil
		})
		<-frozen.begun
		l.Cut()
		time.Sleep(2 * ttl)
		l.Heal()
		if !other.IsLeader() || frozen.IsLeader() || frozen.Healthy() == nil {
			t.Errorf("leads: %v, frozen leads: %v and its health is %v", other.IsLeader(), frozen.IsLeader(), frozen.Healthy())
		}
		time.Sleep(2 * ttl)
		if err := <-late; !errors.Is(err, errStale) {
			t.Errorf("the late write: %v", err)
		}
		if next, err := guard.next(lockstep.MaxToken); next != 2 {
			t.Errorf("the next invoice is %d, %v, want 2", next, err)
		}
		other.Resign()
		synctest.Wait()
		if !frozen.IsLeader() || frozen.Healthy() != nil {
			t.Errorf("leads again: %v, health %v", frozen.IsLeader(), frozen.Healthy())
		}
	})
}
