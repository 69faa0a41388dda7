package client_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
	"github.com/lockstep-dev/lockstep/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what should happen at once, on a machine busy with other tests.
const patience = 20 * time.Second

// shortTTL is for tests that wait for the end of a lease. The others have the default, which even a
// busy machine renews in time.
func shortTTL(c *client.Config) { c.TTL, c.UnavailableAfter = 2*time.Second, patience }

func newClient(t *testing.T, nodes []*wirefake.Node, change ...func(*client.Config)) *client.Client {
	t.Helper()
	var cfg client.Config
	for _, n := range nodes {
		cfg.Endpoints = append(cfg.Endpoints, n.Address())
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

func acquire(t *testing.T, c *client.Client, name string, opts ...lockstep.AcquireOption) lockstep.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := c.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lost(t *testing.T, l lockstep.Lock) *lockstep.LossError {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(patience):
		t.Fatalf("%s is not lost after %v", l.Name(), patience)
	}
	loss, ok := errors.AsType[*lockstep.LossError](context.Cause(l.Context()))
	if !ok {
		t.Fatalf("cause = %v, want a loss", context.Cause(l.Context()))
	}
	return loss
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %v", what, patience)
		}
	}
}

func TestABadConfigurationIsRefusedWithTheField(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]client.Config{
		"endpoints": {},
		"endpoint":  {Endpoints: []string{"localhost"}},
		"ttl":       {Endpoints: []string{"[::1]:7400"}, TTL: time.Millisecond},
		"metadata":  {Endpoints: []string{"n1:7400"}, Metadata: map[string]string{"a": strings.Repeat("x", 2000)}},
	} {
		_, err := client.New(cfg)
		invalid, ok := errors.AsType[*lockstep.InvalidError](err)
		if !ok || !errors.Is(err, lockstep.ErrInvalid) || invalid.Field != name {
			t.Errorf("%s: err = %v, want ErrInvalid of that field", name, err)
		}
		if _, err := client.NewAdmin(cfg); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: admin: err = %v, want ErrInvalid", name, err)
		}
	}
	if _, err := client.New(client.Config{Endpoints: []string{"n1:0"}}); !errors.Is(err, lockstep.ErrInvalid) {
		t.Errorf("port 0: err = %v, want ErrInvalid", err)
	}
}

func TestANewClientDoesNothingAndCloses(t *testing.T) {
	t.Parallel()
	c, err := client.New(client.Config{Endpoints: []string{"192.0.2.1:7400"}})
	if err != nil {
		t.Fatal(err)
	}
	caps := c.Capabilities()
	if caps.Backend != "native" || caps.TTL != 10*time.Second || caps.Grace != 500*time.Millisecond || !caps.FIFO || caps.ClockBound {
		t.Errorf("capabilities %+v", caps)
	}
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Acquire(t.Context(), "a"); !errors.Is(err, lockstep.ErrClosed) {
		t.Errorf("acquire after close: %v, want ErrClosed", err)
	}
}

func TestTheLeaderIsFoundFromAnyEndpointEvenOneThatIsNotListed(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 5)
	c := newClient(t, nodes[3:]) // the first one leads
	l := acquire(t, c, "a")
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	state, err := c.Inspect(t.Context(), "a")
	if err != nil || len(state.Holders) != 0 {
		t.Errorf("state %+v, err %v", state, err)
	}
}

func TestALockLivesThroughAChangeOfLeaderAndAnOutage(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	c := newClient(t, nodes)
	l := acquire(t, c, "a")
	for round := range 6 {
		cluster.Lead(nil)
		time.Sleep(300 * time.Millisecond)
		cluster.Lead(nodes[round%3])
		if err := acquire(t, c, "b").Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := l.Check(); err != nil {
		t.Errorf("check: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestALeaderThatHangsIsLeftForAnother(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 3)
	c := newClient(t, nodes, func(c *client.Config) { c.TTL = 6 * time.Second })
	l := acquire(t, c, "a")
	nodes[0].Silence(true) // its connections and streams stay up
	cluster.Elect(nodes[1])
	time.Sleep(7 * time.Second)
	if err := l.Check(); err != nil {
		t.Errorf("check: %v", err)
	}
}

func TestTheEndOfTheLeaseNeedsNoNetworkAndTheClientGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	var e events
	c := newClient(t, nodes, shortTTL, func(c *client.Config) { c.Observer = &e })
	l := acquire(t, c, "a")
	nodes[0].Silence(true)
	time.Sleep(2 * time.Second) // no renewal sent after this is confirmed
	if l.Check() == nil || l.Remaining() != 0 {
		t.Errorf("%v remain 2 s after the last renewal, the lease is 2 s", l.Remaining())
	}
	loss := lost(t, l)
	if loss.Reason != lockstep.LeaseEnded {
		t.Errorf("reason %v", loss.Reason)
	}
	if err := l.Check(); !errors.Is(err, lockstep.ErrLost) || l.Remaining() != 0 {
		t.Errorf("check: %v, %v remain", err, l.Remaining())
	}
	if err := l.Release(t.Context()); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	nodes[0].Silence(false)
	again := acquire(t, c, "a")
	renewals := e.count(client.Renewed)
	until(t, "renewal in the new session", func() bool { return e.count(client.Renewed) > renewals })
	if again.Token() <= l.Token() {
		t.Errorf("token %d after %d", again.Token(), l.Token())
	}
}

func TestAWaiterGoesOnInANewSessionWhenItsOwnExpires(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	a := newClient(t, nodes)
	b := newClient(t, nodes)
	l := acquire(t, a, "x")
	got := make(chan lockstep.Lock, 1)
	go func() { got <- acquire(t, b, "x") }()
	until(t, "waiter", func() bool { return waiters(cluster, "x") == 1 })
	before := owner(t, b, "x")
	cluster.Do(func(s *wirefake.Service) { s.Expire(before) })
	until(t, "waiter in another session", func() bool { return waiters(cluster, "x") == 1 && owner(t, b, "x") != before })
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := (<-got).Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func waiters(c *wirefake.Cluster, name string) (n int) {
	c.Do(func(s *wirefake.Service) { n = s.Waiters(name) })
	return n
}

// owner returns the session of the first waiter.
func owner(t *testing.T, c *client.Client, name string) string {
	t.Helper()
	s, err := c.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Waiters) == 0 {
		return ""
	}
	return s.Waiters[0].Owner
}

func TestALockThatTheServiceEndsSaysWhy(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes)
	session := func(name string) (id string) {
		cluster.Do(func(s *wirefake.Service) { id, _, _ = s.Holder(name) })
		return id
	}
	for _, test := range []struct {
		name   string
		end    func(s *wirefake.Service, id string)
		reason lockstep.LossReason
		by     string
	}{
		{"revoked", func(s *wirefake.Service, _ string) { s.Revoke("revoked", "ops") }, lockstep.Revoked, "ops"},
		{"session/revoked", func(s *wirefake.Service, id string) { s.RevokeSession(id) }, lockstep.Revoked, "test"},
		{"session/expired", func(s *wirefake.Service, id string) { s.Expire(id) }, lockstep.SessionExpired, "test"},
	} {
		l := acquire(t, c, test.name)
		id := session(test.name)
		cluster.Do(func(s *wirefake.Service) { test.end(s, id) })
		loss := lost(t, l)
		if loss.Reason != test.reason || loss.By != test.by {
			t.Errorf("%s: %v", test.name, loss)
		}
		if err := l.Release(t.Context()); !errors.Is(err, lockstep.ErrLost) {
			t.Errorf("%s: release: %v, want ErrLost", test.name, err)
		}
		until(t, test.name+" that is free", func() bool { return session(test.name) == "" })
	}
}

func TestMaxHoldEndsALockThatItsHolderForgot(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes)
	l := acquire(t, c, "a", lockstep.WithMaxHold(time.Second))
	if loss := lost(t, l); loss.Reason != lockstep.MaxHoldReached {
		t.Errorf("reason %v", loss.Reason)
	}
	until(t, "free lock", func() (free bool) {
		cluster.Do(func(s *wirefake.Service) { id, _, _ := s.Holder("a"); free = id == "" })
		return free
	})
	if err := l.Release(t.Context()); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
}

func TestAWaitThatRunsOutIsBusyAndNamesTheHolder(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes)
	l := acquire(t, c, "a")
	began := time.Now()
	_, err := c.Acquire(t.Context(), "a", lockstep.WithWait(100*time.Millisecond)) // the fake does not time waits
	if !errors.Is(err, lockstep.ErrBusy) {
		t.Errorf("err = %v, want ErrBusy", err)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("took %v", took)
	}
	if _, err := lockstep.TryAcquire(t.Context(), c, "a"); !errors.Is(err, lockstep.ErrBusy) {
		t.Errorf("try: %v, want ErrBusy", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNobodyThereIsUnavailableAfterTheTimeGiven(t *testing.T) {
	t.Parallel()
	dead, err := testbed.Addresses(2)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, nil, func(c *client.Config) { c.Endpoints, c.UnavailableAfter = dead, time.Second })
	_, err = c.Acquire(t.Context(), "a")
	if !errors.Is(err, lockstep.ErrUnavailable) || !lockstep.SafeToRetry(err) || !strings.Contains(err.Error(), "all 2 endpoints refuse connections") || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("err = %v, want ErrUnavailable with the reason", err)
	}
	if err := lockstep.Ping(t.Context(), c); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("ping: %v, want ErrUnavailable", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	c = newClient(t, nil, func(c *client.Config) { c.Endpoints, c.UnavailableAfter = dead, time.Minute })
	_, err = c.Acquire(ctx, "a")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("err = %v, want the deadline and ErrUnavailable", err)
	}
	a, err := client.NewAdmin(client.Config{Endpoints: dead, UnavailableAfter: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Lock(t.Context(), "a", 0); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("admin: %v, want ErrUnavailable", err)
	}
	for _, s := range a.Status(t.Context()) {
		if !errors.Is(s.Err, lockstep.ErrUnavailable) {
			t.Errorf("status of %s: %v", s.Endpoint, s.Err)
		}
	}
}

func TestCloseReleasesEverythingAtOnce(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes)
	other := newClient(t, nodes)
	held := acquire(t, c, "a")
	blocked := acquire(t, other, "b")
	failed := make(chan error, 1)
	go func() {
		_, err := c.Acquire(t.Context(), "b")
		failed <- err
	}()
	until(t, "waiter", func() bool { return waiters(cluster, "b") == 1 })
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, lockstep.ErrClosed) {
		t.Errorf("the waiter got %v, want ErrClosed", err)
	}
	if err := held.Check(); !errors.Is(err, lockstep.ErrReleased) {
		t.Errorf("check: %v, want ErrReleased", err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	cluster.Do(func(s *wirefake.Service) {
		if id, _, _ := s.Holder("a"); id != "" || s.Waiters("b") != 0 {
			t.Error("a claim is left after Close")
		}
	})
	if err := blocked.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A lock whose release is not answered ends with its lease, which is no loss: its holder is done
// with it.
func TestALockThatWasReleasedIsNotReportedAsLost(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := newClient(t, nodes, shortTTL, func(c *client.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	kept, released := acquire(t, c, "kept"), acquire(t, c, "released")
	nodes[0].Silence(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := released.Release(ctx); err == nil {
		t.Error("a release without an answer succeeds")
	}
	lost(t, kept)
	time.Sleep(100 * time.Millisecond) // the locks of a session end together, in any order
	text, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `msg="lock lost"`); n != 1 || !strings.Contains(string(text), "lock=kept") || strings.Contains(string(text), "lock=released") {
		t.Errorf("the log names %d losses, want that of the lock that was kept:\n%s", n, text)
	}
}

func TestCloseWithoutAnAnswerIsUncertainAndStops(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes)
	l := acquire(t, c, "a")
	nodes[0].Silence(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Close(ctx); !errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("close: %v, want ErrUncertain", err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("release: %v, want ErrUncertain", err)
	}
}

func TestConcurrentClaimsAreBatched(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	c := newClient(t, nodes)
	acquire(t, c, "warm")
	before, _ := cluster.Received()
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			l := acquire(t, c, "hot")
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	frames, _ := cluster.Received()
	// Each hand-over is a separate release, but the waiters arrive together.
	frames -= before
	t.Logf("%d frames for 1000 requests", frames)
	if frames >= 1000 {
		t.Errorf("%d frames for 500 acquires and releases", frames)
	}
}

// events records what an Observer is notified of.
type events struct {
	mu   sync.Mutex
	seen []client.Event
}

func (e *events) Observe(ev client.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, ev)
}

func (e *events) count(kind client.EventKind) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.seen {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

func (e *events) has(kind client.EventKind) bool { return e.count(kind) > 0 }

func TestAnObserverIsToldOfEveryKindOfEvent(t *testing.T) {
	t.Parallel()
	cluster, nodes := wirefake.Start(t, 1)
	var e events
	c := newClient(t, nodes, func(c *client.Config) { c.Observer, c.TTL = &e, 3*time.Second })
	if err := acquire(t, c, "a").Release(t.Context()); err != nil {
		t.Error(err)
	}
	l := acquire(t, c, "a")
	until(t, "renewal", func() bool { return e.has(client.Renewed) })
	cluster.Do(func(s *wirefake.Service) { s.Revoke("a", "ops") })
	lost(t, l)
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for k := client.Connected; k <= client.Released; k++ {
		if !e.has(k) {
			t.Errorf("no event %q", k)
		}
	}
}

func TestAnAdminRevokesTheGrantThatItRead(t *testing.T) {
	t.Parallel()
	_, nodes := wirefake.Start(t, 3)
	c := newClient(t, nodes)
	l := acquire(t, c, "a")
	a, err := client.NewAdmin(client.Config{Endpoints: []string{nodes[1].Address(), nodes[2].Address()}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if n, err := a.RevokeLock(t.Context(), "a", client.Revocation{By: "ops", Reason: "test"}); err != nil || n != 1 {
		t.Errorf("revoked %d, err %v", n, err)
	}
	if loss := lost(t, l); loss.By != "ops" {
		t.Errorf("%v", loss)
	}
	if n, err := a.RevokeLock(t.Context(), "a", client.Revocation{By: "ops", Reason: "test"}); err != nil || n != 0 {
		t.Errorf("again: revoked %d, err %v", n, err)
	}
	status := a.Status(t.Context())
	if len(status) != 2 || status[0].Status.GetLeaderAddress() != nodes[0].Address() {
		t.Errorf("status %+v", status)
	}
}
