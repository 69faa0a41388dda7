package zklock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/zookeeper/zklock"
	"github.com/lockstep-dev/lockstep/internal/testbed"
)

// TestOnOneServer runs the tests that share a server, which grants sessions of 2 s to 4 s.
func TestOnOneServer(t *testing.T) {
	t.Setenv("JDK_JAVA_OPTIONS", "-Dznode.container.checkIntervalMs=1000") // the default is a minute
	servers := startServers(t, 1, quick, "minSessionTimeout=2000", "maxSessionTimeout=4000").Addresses()
	for name, test := range map[string]func(*testing.T, []string){
		"the timeout that the server grants is the TTL":         testGrantedTimeout,
		"a user keeps strangers out":                            testUser,
		"a session whose node is deleted is over":               testDeletedSession,
		"shared holders at the same time have the same token":   testSharedTokens,
		"a create whose answer is lost leaves no ghost":         testLostAnswers,
		"cancelled waiters leave no ticket":                     testCancelledWaiters,
		"a watch shows what Inspect does":                       testWatch,
		"a directory that was idle is removed by ZooKeeper":     testContainer,
		"a locker that has reached nothing says so and can end": testUnreachable,
	} {
		t.Run(name, func(t *testing.T) { test(t, servers) })
	}
}

func mustAcquire(t *testing.T, l lockstep.Locker, name string, opts ...lockstep.AcquireOption) lockstep.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lock, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func mustRelease(t *testing.T, lock lockstep.Lock) {
	t.Helper()
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func testGrantedTimeout(t *testing.T, servers []string) {
	for asked, granted := range map[time.Duration]time.Duration{
		time.Second:      2 * time.Second,
		3 * time.Second:  3 * time.Second,
		30 * time.Second: 4 * time.Second,
	} {
		l := open(t, zklock.Config{Servers: servers, TTL: asked})
		if got := l.Capabilities().TTL; got != asked {
			t.Errorf("a TTL of %v before the first session, want %v", got, asked)
		}
		lock := mustAcquire(t, l, "server/granted")
		if got := l.Capabilities().TTL; got != granted {
			t.Errorf("asked for %v, got %v, want %v", asked, got, granted)
		}
		if left := lock.Remaining(); left > granted || left < granted/4 {
			t.Errorf("%v remain of %v", left, granted)
		}
		mustRelease(t, lock)
	}
}

func testUser(t *testing.T, servers []string) {
	alice := open(t, zklock.Config{Servers: servers, Root: "/alice", User: "alice", Password: "secret"})
	lock := mustAcquire(t, alice, "server/user")
	again := open(t, zklock.Config{Servers: servers, Root: "/alice", User: "alice", Password: "secret"})
	if _, err := lockstep.TryAcquire(t.Context(), again, "server/user"); !errors.Is(err, lockstep.ErrBusy) {
		t.Errorf("another client of the user: %v, want ErrBusy", err)
	}
	for _, stranger := range []zklock.Config{
		{Servers: servers, Root: "/alice"},
		{Servers: servers, Root: "/alice", User: "alice", Password: "wrong"},
	} {
		if _, err := open(t, stranger).Acquire(t.Context(), "server/user"); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("a stranger: %v, want ErrInvalid", err)
		}
	}
	mustRelease(t, lock)
}

func testDeletedSession(t *testing.T, servers []string) {
	l := open(t, zklock.Config{Servers: servers, Root: "/deleted"})
	lock := mustAcquire(t, l, "server/deleted")
	op := newOperator(t, servers)
	sessions, _, err := op.conn.Children("/deleted/sessions")
	if err != nil || len(sessions) != 1 {
		t.Fatalf("sessions %v: %v", sessions, err)
	}
	if err := op.conn.Delete("/deleted/sessions/"+sessions[0], -1); err != nil {
		t.Fatal(err)
	}
	<-lock.Context().Done()
	loss, ok := errors.AsType[*lockstep.LossError](context.Cause(lock.Context()))
	if !ok || loss.Reason != lockstep.RecordMissing {
		t.Errorf("cause %v, want a missing record", context.Cause(lock.Context()))
	}
	mustRelease(t, mustAcquire(t, l, "server/deleted")) // in a new session
}

// A mark is what a guard remembers: it refuses a token that is older than one it has seen.
type mark struct{ highest atomic.Uint64 }

func (m *mark) enter(token lockstep.Token) bool {
	for {
		seen := m.highest.Load()
		if uint64(token) < seen {
			return false
		}
		if m.highest.CompareAndSwap(seen, uint64(token)) {
			return true
		}
	}
}

// testSharedTokens has overlapping readers come and go, and writers between them. A guard that
// ignores modes refuses none of them.
func testSharedTokens(t *testing.T, servers []string) {
	lockers := []lockstep.Locker{open(t, zklock.Config{Servers: servers}), open(t, zklock.Config{Servers: servers})}
	one := mustAcquire(t, lockers[0], "server/shared", lockstep.WithShared())
	two := mustAcquire(t, lockers[1], "server/shared", lockstep.WithShared())
	mustRelease(t, one)
	three := mustAcquire(t, lockers[0], "server/shared", lockstep.WithShared())
	if one.Token() != two.Token() || two.Token() != three.Token() {
		t.Errorf("tokens %d, %d and %d of overlapping holders", one.Token(), two.Token(), three.Token())
	}
	mustRelease(t, two)
	mustRelease(t, three)

	var guard mark
	var writers, readers atomic.Int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for round := range 12 {
				var opts []lockstep.AcquireOption
				count, others := &writers, &readers
				if (i+round)%4 != 0 {
					opts, count, others = append(opts, lockstep.WithShared()), &readers, &writers
				}
				lock := mustAcquire(t, lockers[i%2], "server/shared", opts...)
				n := count.Add(1)
				if others.Load() != 0 || n > 1 && count == &writers {
					t.Error("a writer holds beside another holder")
				}
				for range 2 {
					if !guard.enter(lock.Token()) {
						t.Errorf("the guard refuses token %d of a holder", lock.Token())
					}
					time.Sleep(time.Duration(rand.IntN(int(3 * time.Millisecond))))
				}
				count.Add(-1)
				mustRelease(t, lock)
			}
		})
	}
	group.Wait()
}

// testLostAnswers replays samuel/go-zookeeper#229 and apache/curator#566: the node was created, and
// the connection breaks before the answer.
func testLostAnswers(t *testing.T, servers []string) {
	const name = "server/answers"
	eater := newEater(t, servers[0])
	l := open(t, zklock.Config{Servers: []string{eater.address()}})
	rival := open(t, zklock.Config{Servers: servers})
	mustRelease(t, mustAcquire(t, l, name))
	op := newOperator(t, servers)
	var last lockstep.Token
	for range 10 {
		eater.eatNextCreate()
		lock := mustAcquire(t, l, name)
		if nodes := op.claims(name); len(nodes) != 1 {
			t.Errorf("nodes %v of one claim", nodes)
		}
		mustRelease(t, lock)
		next := mustAcquire(t, rival, name)
		if lock.Token() <= last || next.Token() <= lock.Token() {
			t.Errorf("tokens %d, %d, %d", last, lock.Token(), next.Token())
		}
		last = next.Token()
		mustRelease(t, next)
	}
	if n := eater.eaten.Load(); n != 10 {
		t.Errorf("%d answers were lost, want 10", n)
	}
	awaitEmpty(t, op, name)
}

// awaitEmpty waits until a lock has no node, which may take a clean-up but no expiry.
func awaitEmpty(t *testing.T, op operator, name string) {
	t.Helper()
	await(t, 2*time.Second, "no claim is left", func() bool { return len(op.claims(name)) == 0 })
}

// testCancelledWaiters replays kazoo#760 and spring-integration#2557: waiters give up, and their
// connections break at the same time.
func testCancelledWaiters(t *testing.T, servers []string) {
	const name = "server/cancelled"
	held := mustAcquire(t, open(t, zklock.Config{Servers: servers}), name)
	c := openCuttable(t, servers, zklock.Config{})
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond+time.Duration(rand.IntN(int(100*time.Millisecond))))
				if lock, err := c.Acquire(ctx, name); err == nil {
					t.Errorf("granted with token %d while another holds it", lock.Token())
				}
				cancel()
			}
		})
	}
	for range 8 {
		time.Sleep(60 * time.Millisecond)
		c.each((*testbed.Proxy).Break)
	}
	group.Wait()
	next := make(chan error, 1)
	go func() {
		lock, err := c.Acquire(t.Context(), name)
		if err == nil {
			err = lock.Release(t.Context())
		}
		next <- err
	}()
	time.Sleep(50 * time.Millisecond)
	mustRelease(t, held)
	select {
	case err := <-next:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Second):
		t.Error("a ticket of a cancelled waiter is in the way")
	}
	awaitEmpty(t, newOperator(t, servers), name)
}

// testWatch follows readers, whose grant changes a node's data but no directory.
func testWatch(t *testing.T, servers []string) {
	l, rival := open(t, zklock.Config{Servers: servers}), open(t, zklock.Config{Servers: servers})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := make(chan lockstep.State, 100)
	go func() {
		defer close(seen)
		for state, err := range rival.Watch(ctx, "server/watch") {
			if err != nil {
				t.Error(err)
				return
			}
			seen <- state
		}
	}()
	awaitState(t, seen, func(s lockstep.State) bool { return len(s.Holders) == 0 })
	one := mustAcquire(t, l, "server/watch", lockstep.WithShared())
	two := mustAcquire(t, l, "server/watch", lockstep.WithShared())
	s := awaitState(t, seen, func(s lockstep.State) bool { return len(s.Holders) == 2 })
	if s.Holders[0].Token != one.Token() || s.NextToken <= one.Token() {
		t.Errorf("state %+v, want token %d", s, one.Token())
	}
	inspected, err := rival.Inspect(ctx, "server/watch")
	if err != nil || len(inspected.Holders) != 2 {
		t.Errorf("inspected %+v: %v", inspected, err)
	}
	mustRelease(t, one)
	mustRelease(t, two)
	awaitState(t, seen, func(s lockstep.State) bool { return len(s.Holders) == 0 })
	cancel()
	for range seen {
	}
}

func awaitState(t *testing.T, seen <-chan lockstep.State, holds func(lockstep.State) bool) lockstep.State {
	t.Helper()
	for {
		select {
		case s, ok := <-seen:
			if !ok {
				t.Fatal("the watch has ended")
			}
			if holds(s) {
				return s
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the state was not seen")
		}
	}
}

func testContainer(t *testing.T, servers []string) {
	l := open(t, zklock.Config{Servers: servers})
	op := newOperator(t, servers)
	var last lockstep.Token
	for range 2 {
		lock := mustAcquire(t, l, "server/container")
		if lock.Token() <= last {
			t.Errorf("token %d after %d", lock.Token(), last)
		}
		last = lock.Token()
		mustRelease(t, lock)
		await(t, 10*time.Second, "the directory is removed", func() bool {
			exists, _, err := op.conn.Exists(dirOf("server/container"))
			return err == nil && !exists
		})
	}
}

func testUnreachable(t *testing.T, servers []string) {
	nowhere, err := testbed.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, zklock.Config{Servers: nowhere, TTL: 2 * time.Second})
	if _, err := lockstep.TryAcquire(t.Context(), l, "server/nowhere"); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("a try: %v, want ErrUnavailable", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := l.Inspect(ctx, "server/nowhere"); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("inspect: %v, want ErrUnavailable", err)
	}
	hasty := open(t, zklock.Config{Servers: nowhere, UnavailableAfter: 200 * time.Millisecond})
	begin := time.Now()
	if _, err := hasty.Acquire(t.Context(), "server/nowhere"); !errors.Is(err, lockstep.ErrUnavailable) || time.Since(begin) > 4*time.Second {
		t.Errorf("acquire: %v after %v, want ErrUnavailable after 200ms", err, time.Since(begin))
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := l.Inspect(t.Context(), "server/nowhere"); !errors.Is(err, lockstep.ErrClosed) {
		t.Errorf("inspect after close: %v, want ErrClosed", err)
	}
}
