package election_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/memlock"
)

const ttl = lockstep.DefaultTTL

var errWork = errors.New("the work failed")

func candidate(t *testing.T, l lockstep.Locker, cfg election.Config) *election.Candidate {
	t.Helper()
	c, err := election.New(l, "leader", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A stand is a candidate that runs on its own goroutine.
type stand struct {
	*election.Candidate
	cancel context.CancelFunc
	begun  chan context.Context // the context of each term, as it begins
	ended  chan error           // what Run returned
}

// run starts a candidate whose body waits for the end of its term. It ends with the test; in a
// bubble a leftover goroutine fails the test.
func run(t *testing.T, l lockstep.Locker, cfg election.Config) *stand {
	return runWith(t, l, cfg, func(ctx context.Context, _ lockstep.Token) error {
		<-ctx.Done()
		return nil
	})
}

func runWith(t *testing.T, l lockstep.Locker, cfg election.Config, body func(context.Context, lockstep.Token) error) *stand {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stand{candidate(t, l, cfg), cancel, make(chan context.Context, 100), make(chan error, 1)}
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		s.ended <- s.Run(ctx, func(ctx context.Context, token lockstep.Token) error {
			s.begun <- ctx
			return body(ctx, token)
		})
	}()
	synctest.Wait()
	return s
}

// held reports whether anyone holds the election's lock.
func held(t *testing.T, l *memlock.Locker) bool {
	t.Helper()
	s, err := l.Inspect(t.Context(), "leader")
	if err != nil {
		t.Fatal(err)
	}
	return len(s.Holders) > 0
}

func TestWhatTheBodyReturnsEndsRun(t *testing.T) {
	for name, want := range map[string]error{"nil": nil, "an error": errWork} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := memlock.New()
				s := runWith(t, l, election.Config{}, func(context.Context, lockstep.Token) error { return want })
				if err := <-s.ended; err != want {
					t.Errorf("Run = %v, want %v", err, want)
				}
				if held(t, l) || s.IsLeader() {
					t.Error("the lock is held after Run")
				}
			})
		})
	}
}

func TestTheEndOfTheContextEndsRun(t *testing.T) {
	t.Run("while it leads with what the body returns", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := memlock.New()
			s := runWith(t, l, election.Config{}, func(ctx context.Context, _ lockstep.Token) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				if !held(t, l) {
					t.Error("the lock is free before the body has returned")
				}
				return errWork
			})
			s.cancel()
			if err := <-s.ended; err != errWork {
				t.Errorf("Run = %v, want %v", err, errWork)
			}
			if held(t, l) {
				t.Error("the lock is held after Run")
			}
		})
	})
	t.Run("while it waits with the cause, and no body hears of it (client-go#1187)", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			space := memlock.NewSpace()
			run(t, space.Locker(), election.Config{}) // leads
			ctx, cancel := context.WithCancelCause(t.Context())
			waits := candidate(t, space.Locker(), election.Config{})
			ended := make(chan error, 1)
			go func() {
				ended <- waits.Run(ctx, func(context.Context, lockstep.Token) error { panic("leads beside another") })
			}()
			synctest.Wait()
			cancel(errWork)
			if err := <-ended; err != errWork {
				t.Errorf("Run = %v, want the cause", err)
			}
		})
	})
	t.Run("at once when it is done before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := candidate(t, memlock.New(), election.Config{}).Run(ctx, func(context.Context, lockstep.Token) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want Canceled", err)
		}
	})
}

func TestTheBodyHasTheTokenOfItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		var tokens []lockstep.Token
		s := runWith(t, l, election.Config{}, func(ctx context.Context, token lockstep.Token) error {
			tokens = append(tokens, token)
			if len(tokens) == 3 {
				return nil
			}
			l.Expire()
			<-ctx.Done()
			return ctx.Err()
		})
		if err := <-s.ended; err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(tokens); i++ {
			if tokens[i] <= tokens[i-1] {
				t.Errorf("tokens %v do not rise", tokens)
			}
		}
	})
}

func TestACandidateRunsOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, memlock.New(), election.Config{})
		body := func(context.Context, lockstep.Token) error { return nil }
		if err := s.Run(t.Context(), body); !errors.Is(err, election.ErrRunning) {
			t.Errorf("second Run = %v, want ErrRunning", err)
		}
		s.cancel()
		<-s.ended
		if err := s.Run(t.Context(), body); err != nil {
			t.Errorf("Run after Run = %v", err)
		}
	})
}

func TestAPanicGivesTheLockBack(t *testing.T) {
	for name, leave := range map[string]func(){
		"panic":  func() { panic("the body broke") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := memlock.New()
				c := candidate(t, l, election.Config{OnNewLeader: func(string) {}})
				var recovered any
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { recovered = recover() }()
					c.Run(t.Context(), func(context.Context, lockstep.Token) error { leave(); return nil })
				}()
				<-done
				if name == "panic" && recovered != "the body broke" {
					t.Errorf("recovered %v", recovered)
				}
				if held(t, l) || c.IsLeader() {
					t.Error("the lock is held after the panic")
				}
			})
		})
	}
}

func TestTheClaimCarriesIdentityAndLabels(t *testing.T) {
	l := memlock.New()
	labels := map[string]string{"purpose": "billing"}
	c := candidate(t, l, election.Config{Identity: "host-1", Metadata: labels})
	labels["purpose"] = "changed by its owner later"
	err := c.Run(t.Context(), func(ctx context.Context, _ lockstep.Token) error {
		s, err := l.Inspect(ctx, "leader")
		if got := s.Holders[0].Metadata; err != nil || len(got) != 2 || got["identity"] != "host-1" || got["purpose"] != "billing" {
			t.Errorf("metadata %v, error %v", got, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// lines counts log lines by message.
type lines struct {
	slog.Handler
	mu sync.Mutex
	of map[string]int
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[r.Message]++
	return nil
}

func TestWhatRunDoesNotReturnIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{of: map[string]int{}}
		memory := memlock.New(memlock.WithTTL(30 * time.Second))
		l := inspecting{&refusing{Locker: memory, times: 2, err: lockstep.ErrUnavailable}, memory}
		s := run(t, l, election.Config{Logger: slog.New(log), OnNewLeader: func(string) {}})
		<-s.begun
		memory.Cut() // it steps down, cannot release, and cannot inspect
		time.Sleep(time.Minute)
		s.cancel()
		<-s.ended
		for message, want := range map[string]int{
			"campaign failed, standing again":     2,
			"term begins":                         1,
			"term over":                           1,
			"lock not confirmed to be free":       1,
			"cannot tell who leads, asking again": 10, // at least
		} {
			if got := log.of[message]; got < want || got > want && want < 10 {
				t.Errorf("%d lines %q, want %d", got, message, want)
			}
		}
	})
}

// refusing is a Locker whose Acquire fails a number of times.
type refusing struct {
	lockstep.Locker
	times int
	err   error
	asked []time.Time
}

func (r *refusing) Acquire(ctx context.Context, name string, opts ...lockstep.AcquireOption) (lockstep.Lock, error) {
	r.asked = append(r.asked, time.Now())
	if len(r.asked) <= r.times {
		return nil, &lockstep.OpError{Op: "acquire", Lock: name, Err: r.err}
	}
	return r.Locker.Acquire(ctx, name, opts...)
}

func TestErrorsOfTheBackendAreOutlasted(t *testing.T) {
	for _, broken := range []error{lockstep.ErrUnavailable, lockstep.ErrUncertain, lockstep.ErrQuota, lockstep.ErrBusy, errWork} {
		t.Run(broken.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const period = time.Second
				l := &refusing{Locker: memlock.New(), times: 20, err: broken}
				s := runWith(t, l, election.Config{RetryPeriod: period}, func(context.Context, lockstep.Token) error { return nil })
				if err := <-s.ended; err != nil {
					t.Errorf("Run = %v", err)
				}
				if len(l.asked) != 21 {
					t.Errorf("asked %d times, want 21", len(l.asked))
				}
				for i := 1; i < len(l.asked); i++ {
					if pause := l.asked[i].Sub(l.asked[i-1]); pause < period || pause > 6*period/5 {
						t.Errorf("pause %v, want %v to %v", pause, period, 6*period/5)
					}
				}
			})
		})
	}
}

func TestErrorsThatStayEndRun(t *testing.T) {
	for _, lasting := range []error{lockstep.ErrMode, lockstep.ErrUnsupported, lockstep.ErrInvalid, lockstep.ErrClosed} {
		l := &refusing{Locker: memlock.New(), times: 1, err: lasting}
		err := candidate(t, l, election.Config{}).Run(t.Context(), func(context.Context, lockstep.Token) error { return nil })
		if !errors.Is(err, lasting) {
			t.Errorf("Run = %v, want %v", err, lasting)
		}
	}
}

func TestRetryDecidesWhetherAnErrorEndsRun(t *testing.T) {
	for _, c := range []struct {
		err         error
		again, want bool // what the candidate would do, and what Retry says
	}{
		{lockstep.ErrUnavailable, true, false},
		{lockstep.ErrUnavailable, true, true},
		{lockstep.ErrInvalid, false, true},
		{lockstep.ErrInvalid, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &refusing{Locker: memlock.New(), times: 1, err: c.err}
			cfg := election.Config{Retry: func(err error, again bool) bool {
				if !errors.Is(err, c.err) || again != c.again {
					t.Errorf("Retry(%v, %v), want again = %v", err, again, c.again)
				}
				return c.want
			}}
			err := candidate(t, l, cfg).Run(t.Context(), func(context.Context, lockstep.Token) error { return nil })
			if (err == nil) != c.want || !c.want && !errors.Is(err, c.err) {
				t.Errorf("Run = %v after %v, Retry = %v", err, c.err, c.want)
			}
		})
	}
}

func TestALockerThatIsClosedEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlock.New()
		s := run(t, l, election.Config{})
		l.Close(t.Context())
		if err := <-s.ended; !errors.Is(err, lockstep.ErrClosed) {
			t.Errorf("Run = %v, want ErrClosed", err)
		}
	})
}
