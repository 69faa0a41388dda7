package conformance

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/election"
)

const (
	electionOffice = "election/office"
	// electionTTL is longer than a busy machine can keep a test from renewing.
	electionTTL = 10 * time.Second
	// settleTime is how long an observer has to report something that it should not report.
	settleTime = 200 * time.Millisecond
)

// A stall holds up selected calls until it is ended, as a slow network does.
type stall struct {
	once    sync.Once
	reached chan struct{} // closed when a call is held up
	ended   chan struct{} // closed when calls continue
}

func newStall() *stall {
	return &stall{reached: make(chan struct{}), ended: make(chan struct{})}
}

func (s *stall) wait(ctx context.Context) error {
	s.once.Do(func() { close(s.reached) })
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// end may be called again.
func (s *stall) end() {
	select {
	case <-s.ended:
	default:
		close(s.ended)
	}
}

func (s *stall) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (s *stall) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return open(ctx, desc, cc, method, opts...)
}

// TestADelayedObserverInventsNoLeader delays an observer before it subscribes, between subscribing
// and reading, and between two of its reads, while two leaders come and go (etcd#18163). It must
// not report either of the two as leading; it must see the third one come, and see that nobody
// leads when that one is gone.
func TestADelayedObserverInventsNoLeader(t *testing.T) {
	c := startCluster(t, 3)
	for name, slow := range map[string]func(s *stall, cfg *client.Config){
		"before it subscribes": func(s *stall, cfg *client.Config) {
			cfg.DialOptions = append(cfg.DialOptions, grpc.WithStreamInterceptor(s.stream), grpc.WithUnaryInterceptor(s.unary))
		},
		"between subscribing and reading": func(s *stall, cfg *client.Config) {
			cfg.DialOptions = append(cfg.DialOptions, grpc.WithUnaryInterceptor(s.unary))
		},
		"after the first look": nil,
	} {
		t.Run(name, func(t *testing.T) {
			observer := newStall()
			defer observer.end()
			k, _ := c.client(t, electionTTL, func(cfg *client.Config) {
				cfg.UnavailableAfter = time.Minute
				if slow != nil {
					slow(observer, cfg)
				}
			})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			reports := make(chan string, 100)
			go observe(ctx, k, reports, func() {
				if slow == nil {
					observer.wait(ctx)
				}
			})
			<-observer.reached
			leadBriefly(t, c, "a")
			leadBriefly(t, c, "b")
			observer.end()
			got := reportsUntil(t, reports, "nobody")
			time.Sleep(settleTime)
			leadWhile(t, c, "c", func() { got = append(got, reportsUntil(t, reports, "c")...) })
			got = append(got, reportsUntil(t, reports, "nobody")...)
			if want := []string{"nobody", "c", "nobody"}; !slices.Equal(got, want) {
				t.Errorf("reported %q, want %q", got, want)
			}
			stop()
			for range reports { // the goroutine ends
			}
		})
	}
}

// observe reports who leads until ctx is done, and calls the function after once per report.
func observe(ctx context.Context, k *client.Client, reports chan<- string, after func()) {
	defer close(reports)
	for leader, err := range election.Observe(ctx, k, electionOffice) {
		switch {
		case err != nil:
			reports <- err.Error()
		case leader.Nobody():
			reports <- "nobody"
		default:
			reports <- leader.Identity
		}
		after()
	}
}

func reportsUntil(t *testing.T, reports <-chan string, last string) (got []string) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case r := <-reports:
			if got = append(got, r); r == last {
				return got
			}
		case <-limit:
			t.Fatalf("reported %q and not %q", got, last)
		}
	}
}

func leadBriefly(t *testing.T, c *cluster, identity string) { leadWhile(t, c, identity, func() {}) }

// leadWhile makes a candidate lead while f runs.
func leadWhile(t *testing.T, c *cluster, identity string, f func()) {
	t.Helper()
	k, _ := c.client(t, electionTTL)
	candidate, err := election.New(k, electionOffice, election.Config{Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	err = candidate.Run(t.Context(), func(context.Context, lockstep.Token) error {
		f()
		return nil
	})
	if err != nil {
		t.Errorf("run of %s: %v", identity, err)
	}
}

// A turn is the beginning or the end of a term.
type turn struct {
	id    string
	token lockstep.Token
	begin bool
	at    time.Time
}

// TestAResignationCedesTheOffice makes leaders resign as soon as they lead. Each time, leadership
// goes to a waiting candidate, never back to the one that resigned, and each beginning has one end.
// The identity and token that an observer gets belong together, however fast the leaders change.
func TestAResignationCedesTheOffice(t *testing.T) {
	const rounds = 30
	c := startCluster(t, 3)
	ctx, stop := context.WithCancel(t.Context())
	turns := make(chan turn, 4*rounds)
	var standing sync.WaitGroup
	for _, id := range []string{"a", "b", "c"} {
		k, _ := c.client(t, electionTTL)
		candidate, err := election.New(k, electionOffice, election.Config{Identity: id, RetryPeriod: election.MinRetryPeriod})
		if err != nil {
			t.Fatal(err)
		}
		standing.Go(func() { resignAlways(ctx, candidate, turns) })
	}
	k, _ := c.client(t, electionTTL)
	var observed []election.Leader
	standing.Go(func() {
		for leader := range election.Observe(ctx, k, electionOffice) {
			observed = append(observed, leader)
		}
	})
	leaders := checkTurns(t, turns, rounds)
	stop()
	standing.Wait()
	seen := 0
	for _, l := range observed {
		if id := leaders[l.Token]; id != "" {
			seen++
			if id != l.Identity {
				t.Errorf("observed %s with token %d, which was that of %s", l.Identity, l.Token, id)
			}
		}
	}
	if seen == 0 {
		t.Error("the observer saw no leader")
	}
}

func resignAlways(ctx context.Context, candidate *election.Candidate, turns chan<- turn) {
	candidate.Run(ctx, func(_ context.Context, token lockstep.Token) error {
		turns <- turn{candidate.Identity(), token, true, time.Now()}
		defer func() { turns <- turn{candidate.Identity(), token, false, time.Now()} }()
		time.Sleep(50 * time.Millisecond) // the others are in the queue
		return candidate.Resign()
	})
}

// checkTurns checks this many terms and returns whose each token was.
func checkTurns(t *testing.T, turns <-chan turn, rounds int) map[lockstep.Token]string {
	t.Helper()
	leaders := map[lockstep.Token]string{}
	var last turn
	var took []time.Duration // hand-overs
	for i := range 2 * rounds {
		now := <-turns
		leaders[now.token] = now.id
		switch {
		case now.begin != (i%2 == 0):
			t.Fatalf("%+v after %+v: beginnings and ends do not alternate", now, last)
		case !now.begin && now.token != last.token:
			t.Errorf("an end of term %d after a beginning of term %d", now.token, last.token)
		case now.begin && now.id == last.id && i > 8: // at first not all are in the queue
			t.Errorf("%s leads again right after it resigned", now.id)
		case now.begin && i > 0:
			took = append(took, now.at.Sub(last.at))
		}
		last = now
	}
	slices.Sort(took)
	median, slowest := took[len(took)/2], took[len(took)-1]
	t.Logf("%d terms, the median hand-over took %v, the slowest %v", rounds, median, slowest)
	// One may be slow on a busy machine; none waits for the lease.
	if median > time.Second || slowest > electionTTL/2 {
		t.Errorf("a hand-over took %v, the slowest %v; want 1 s and at most %v", median, slowest, electionTTL/2)
	}
	return leaders
}
