package election_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/memlock"
)

// watchLeaders collects the observed leaders, "-" for none, until ctx is done.
func watchLeaders(t *testing.T, ctx context.Context, leaders iter.Seq2[election.Leader, error]) *[]string {
	seen := new([]string)
	go func() {
		for leader, err := range leaders {
			if err != nil {
				t.Errorf("observe: %v", err)
			}
			*seen = append(*seen, label(leader))
		}
		if ctx.Err() == nil {
			t.Error("observe ended before its context")
		}
	}()
	synctest.Wait()
	return seen
}

func label(l election.Leader) string {
	if l.Nobody() {
		return "-"
	}
	return l.Identity
}

func TestObserveYieldsEachLeaderAndNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		ctx, stop := context.WithCancel(t.Context())
		seen := watchLeaders(t, ctx, election.Observe(ctx, space.Locker(), "leader"))
		a := run(t, space.Locker(), election.Config{Identity: "a"})
		b := run(t, space.Locker(), election.Config{Identity: "b"}) // a waiter is not an event
		time.Sleep(time.Minute)
		a.Resign()
		synctest.Wait()
		b.cancel()
		synctest.Wait()
		a.cancel()
		synctest.Wait()
		stop()
		synctest.Wait()
		if want := []string{"-", "a", "b", "a", "-"}; !slices.Equal(*seen, want) {
			t.Errorf("observed %v, want %v", *seen, want)
		}
	})
}

func TestObserveYieldsANewTermOfTheSameLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		l := space.Locker()
		s := run(t, l, election.Config{Identity: "a"})
		ctx, stop := context.WithCancel(t.Context())
		var tokens []lockstep.Token
		go func() {
			for leader := range s.Observe(ctx) {
				tokens = append(tokens, leader.Token)
				time.Sleep(2 * time.Minute) // it misses the moment without a leader
			}
		}()
		time.Sleep(time.Minute)
		l.Expire()
		time.Sleep(5 * time.Minute)
		stop()
		s.cancel()
		synctest.Wait()
		if want := []lockstep.Token{1, 2}; !slices.Equal(tokens, want) {
			t.Errorf("tokens %v, want %v", tokens, want)
		}
	})
}

// Two leaders come and go while the observer is busy: it must not report them as leading later, and
// must not miss that there is no leader.
func TestALateObserverInventsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		ctx, stop := context.WithCancel(t.Context())
		truth := "-"
		var seen []string
		go func() {
			for leader, err := range election.Observe(ctx, space.Locker(), "leader") {
				if err != nil {
					t.Errorf("observe: %v", err)
				}
				if label(leader) != truth {
					t.Errorf("observed %q while the leader is %q", label(leader), truth)
				}
				seen = append(seen, label(leader))
				time.Sleep(20 * time.Second)
			}
		}()
		synctest.Wait()
		for _, id := range []string{"a", "b"} {
			s := run(t, space.Locker(), election.Config{Identity: id})
			truth = id
			time.Sleep(5 * time.Second)
			s.cancel()
			<-s.ended
			truth = "-"
		}
		time.Sleep(time.Minute)
		truth = "c"
		run(t, space.Locker(), election.Config{Identity: "c"})
		time.Sleep(time.Minute)
		if want := []string{"-", "c"}; !slices.Equal(seen, want) {
			t.Errorf("observed %v, want %v", seen, want)
		}
		stop()
	})
}

func TestObserveEndsWithTheErrorOfTheWatch(t *testing.T) {
	l := memlock.New()
	l.Close(t.Context())
	for name, c := range map[string]struct {
		locker lockstep.Locker
		want   error
	}{
		"a backend that cannot watch": {bare{memlock.New()}, lockstep.ErrUnsupported},
		"a Locker that is closed":     {l, lockstep.ErrClosed},
	} {
		var last error
		n := 0
		for _, err := range election.Observe(t.Context(), c.locker, "leader") {
			last = err
			n++
		}
		if !errors.Is(last, c.want) || n > 2 {
			t.Errorf("%s: %d events, the last with %v, want %v", name, n, last, c.want)
		}
	}
}

func TestObserveNamesWhoIsNoCandidate(t *testing.T) {
	l := memlock.New()
	lock, err := l.Acquire(t.Context(), "leader")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release(t.Context())
	for leader, err := range election.Observe(t.Context(), l, "leader") {
		if err != nil || leader.Nobody() || leader.Token != lock.Token() || leader.Since.IsZero() {
			t.Errorf("leader %+v, error %v", leader, err)
		}
		break
	}
}

func TestOnNewLeaderHearsOfEachLeaderOnce(t *testing.T) {
	for name, as := range map[string]func(*memlock.Locker) lockstep.Locker{
		"on a backend that watches":        func(l *memlock.Locker) lockstep.Locker { return l },
		"on a backend that inspects alone": func(l *memlock.Locker) lockstep.Locker { return inspecting{l, l} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space := memlock.NewSpace()
				var heard []string
				a := run(t, space.Locker(), election.Config{Identity: "a"})
				l := space.Locker()
				b := run(t, as(l), election.Config{Identity: "b", OnNewLeader: func(id string) { heard = append(heard, id) }})
				time.Sleep(time.Minute)
				a.Resign() // b
				time.Sleep(time.Minute)
				l.Expire() // a
				time.Sleep(time.Minute)
				l.Cut() // its watch is silent, its reads fail
				time.Sleep(time.Minute)
				l.Heal()
				time.Sleep(time.Minute)
				a.cancel() // b
				time.Sleep(time.Minute)
				b.StepDown(time.Minute) // nobody, and b again
				time.Sleep(2 * time.Minute)
				b.cancel()
				<-b.ended
				if want := []string{"a", "b", "a", "b"}; !slices.Equal(heard, want) {
					t.Errorf("heard of %v, want %v", heard, want)
				}
			})
		})
	}
}

func TestRunWaitsForOnNewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := false
		c := candidate(t, memlock.New(), election.Config{OnNewLeader: func(string) {
			time.Sleep(time.Minute)
			returned = true
		}})
		err := c.Run(t.Context(), func(context.Context, lockstep.Token) error {
			time.Sleep(time.Second)
			return nil
		})
		if err != nil || !returned {
			t.Errorf("Run = %v, OnNewLeader has returned: %v", err, returned)
		}
	})
}
