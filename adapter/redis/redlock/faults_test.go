package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/internal/testbed/clockjump"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
	"github.com/lockstep-dev/lockstep/lease"
)

// long is a TTL that no test waits for: its leases outlive the test.
const long = 30 * time.Second

func TestTwoOfFiveMastersMayBeDown(t *testing.T) {
	m := durable(t)
	a, b := m.open(t, config()), m.open(t, config())
	before := acquire(t, a, "jobs/x")
	m.kill(0, 3)
	time.Sleep(config().TTL + time.Second) // the others renew it
	if err := before.Check(); err != nil {
		t.Fatalf("with two masters down: %v", err)
	}
	if _, err := lockstep.TryAcquire(t.Context(), b, "jobs/x"); !errors.Is(err, lockstep.ErrBusy) {
		t.Errorf("try of a held lock with two masters down: %v, want ErrBusy", err)
	}
	release(t, before)
	after := acquire(t, b, "jobs/x")
	if after.Token() <= before.Token() {
		t.Errorf("token %d after %d", after.Token(), before.Token())
	}
	release(t, after)
}

func TestThreeOfFiveMastersDownIsUnavailable(t *testing.T) {
	m := durable(t)
	l := m.open(t, config())
	release(t, acquire(t, l, "jobs/x"))
	m.kill(0, 2, 4)
	begin := time.Now()
	_, err := l.Acquire(t.Context(), "jobs/x")
	if !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("acquire: %v, want ErrUnavailable", err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v to find out", took)
	}
	if _, err := lockstep.TryAcquire(t.Context(), l, "jobs/x"); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("try: %v, want ErrUnavailable", err)
	}
	m.start(t, 2)
	release(t, acquire(t, l, "jobs/x"))
}

func TestFrozenMastersHoldNobodyUp(t *testing.T) {
	m := durable(t)
	l := m.open(t, config())
	release(t, acquire(t, l, "jobs/x"))
	for _, i := range []int{1, 2} {
		if err := m[i].Freeze(); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		release(t, acquire(t, l, "jobs/x"))
	}
}

// shiftedClock is the machine's clock, which can be moved forward.
type shiftedClock struct {
	lease.Clock
	ahead atomic.Int64
}

func (c *shiftedClock) Now() time.Duration { return c.Clock.Now() + time.Duration(c.ahead.Load()) }

// A watchedConn calls f when a granting answer to step 1 has arrived.
type watchedConn struct {
	net.Conn
	f func()
}

func (c watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("*2\r\n:1\r\n")) {
		c.f()
	}
	return n, err
}

// A client that is paused between sending and reading the answers finds on waking that its lease
// has passed. The test moves its clock, as a pause of the whole process would.
func TestGrantThatIsReadTooLateIsDiscarded(t *testing.T) {
	m := durable(t)
	clock := &shiftedClock{Clock: lease.SystemClock()}
	var granted atomic.Int64
	stop := func() {
		if granted.Add(1) == 1 {
			clock.ahead.Store(int64(long + time.Second))
		}
	}
	var nodes []*redis.Client
	for _, address := range m.addresses() {
		client := redis.NewClient(&redis.Options{Addr: address, Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return watchedConn{conn, stop}, err
		}})
		t.Cleanup(func() { client.Close() })
		nodes = append(nodes, client)
	}
	c := config()
	c.TTL, c.Clock = long, clock
	stopped := open(t, nodes, c)
	lock, err := lockstep.TryAcquire(t.Context(), stopped, "jobs/x")
	if err == nil {
		t.Fatalf("the lock was given %v after its lease, token %d", time.Second, lock.Token())
	}
	if !errors.Is(err, lockstep.ErrUncertain) || granted.Load() < 3 {
		t.Errorf("%v, want ErrUncertain; %d nodes granted, want a majority", err, granted.Load())
	}
	c.Clock = nil
	release(t, acquire(t, m.open(t, c), "jobs/x")) // undone long before the TTL
}

// onThree returns a lock that only the first three of five masters have, because the others were
// down.
func onThree(t *testing.T, m masters, name string) lockstep.Lock {
	t.Helper()
	m.kill(3, 4)
	c := config()
	c.TTL = long
	lock := acquire(t, m.open(t, c), name)
	m.start(t, 3, 4)
	return lock
}

// doubleGrant checks that another client gets the lock while its holder still trusts it, and that
// the token shows who is later.
func doubleGrant(t *testing.T, m masters, held lockstep.Lock) {
	t.Helper()
	c := config()
	c.TTL = long
	other := acquire(t, m.open(t, c), held.Name())
	if err := held.Check(); err != nil {
		t.Fatalf("the first holder has noticed, so this test shows nothing: %v", err)
	}
	if other.Token() <= held.Token() {
		t.Errorf("the second holder has token %d, the first has %d: no guard can tell them apart", other.Token(), held.Token())
	}
	caps := m.open(t, c).Capabilities()
	if !caps.ClockBound || !strings.Contains(strings.Join(caps.Notes, " "), "two clients can hold one lock") {
		t.Errorf("the capabilities hide what has just happened: %+v", caps)
	}
	release(t, other)
}

func TestClockJumpBreaksExclusionAndNotTheToken(t *testing.T) {
	library, err := clockjump.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var m masters
	var clocks []*clockjump.Clock
	for range 5 {
		clock, err := library.Clock(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		clocks = append(clocks, clock)
		m = append(m, startMasters(t, 1, redisserver.Config{Persistence: redisserver.AppendAlways, Env: clock.Env()})...)
	}
	held := onThree(t, m, "jobs/x")
	if err := clocks[2].Set(long + 5*time.Second); err != nil {
		t.Fatal(err)
	}
	doubleGrant(t, m, held)
}

func TestRestartWithoutPersistenceBreaksExclusionAndNotTheToken(t *testing.T) {
	m := forgetful(t)
	held := onThree(t, m, "jobs/x")
	m.kill(2)
	m.start(t, 2)
	doubleGrant(t, m, held)
}

func TestRestartWithPersistenceKeepsTheVote(t *testing.T) {
	m := durable(t)
	held := onThree(t, m, "jobs/x")
	m.kill(2)
	m.start(t, 2)
	c := config()
	c.TTL = long
	other := m.open(t, c)
	for range 5 {
		if _, err := lockstep.TryAcquire(t.Context(), other, "jobs/x"); !errors.Is(err, lockstep.ErrBusy) {
			t.Fatalf("try of a held lock: %v, want ErrBusy", err)
		}
	}
	if err := held.Check(); err != nil {
		t.Fatal(err)
	}
	release(t, held)
	release(t, acquire(t, other, "jobs/x"))
}

func TestWipedServersLoseTheLockAndNotTheOrder(t *testing.T) {
	m := durable(t)
	a, b := m.open(t, config()), m.open(t, config())
	before := acquire(t, a, "jobs/x")
	for _, c := range clients(t, m.addresses()) {
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-before.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the holder does not notice that its records are gone")
	}
	loss, ok := errors.AsType[*lockstep.LossError](context.Cause(before.Context()))
	if !ok || loss.Reason != lockstep.RecordMissing && loss.Reason != lockstep.LeaseEnded {
		t.Errorf("lost because of %v, want a missing record", context.Cause(before.Context()))
	}
	after := acquire(t, b, "jobs/x")
	if after.Token() <= before.Token() {
		t.Errorf("token %d after %d: the counters were wiped, the clocks were not", after.Token(), before.Token())
	}
	release(t, after)
}

// A release that comes late, when others have the lock, must find its own claim's record or change
// nothing.
func TestLateReleaseLeavesTheLockOfOthers(t *testing.T) {
	m := durable(t)
	c := config()
	c.TTL = long
	a, b := m.open(t, c), m.open(t, c)
	late := acquire(t, a, "jobs/x")
	direct := clients(t, m.addresses())
	for _, c := range direct {
		if err := c.Del(t.Context(), lockKey("jobs/x")).Err(); err != nil {
			t.Fatal(err)
		}
	}
	lock := acquire(t, b, "jobs/x")
	if err := late.Release(t.Context()); !errors.Is(err, lockstep.ErrLost) {
		t.Errorf("release of a lock that was lost: %v, want ErrLost", err)
	}
	records := 0
	for _, c := range direct {
		if n, err := c.Exists(t.Context(), lockKey("jobs/x")).Result(); err == nil {
			records += int(n)
		}
	}
	if records < 3 {
		t.Errorf("%d nodes have the record of the new holder, want a majority", records)
	}
	release(t, lock)
}

func TestReleaseReachesNodesThatWereAwayInTheBackground(t *testing.T) {
	m := durable(t)
	c := config()
	c.TTL = long
	lock := acquire(t, m.open(t, c), "jobs/x")
	direct := clients(t, m.addresses())
	for _, node := range []int{1, 3} {
		until(t, 10*time.Second, "the record is everywhere", func() bool {
			n, err := direct[node].Exists(t.Context(), lockKey("jobs/x")).Result()
			return err == nil && n == 1
		})
		if err := m[node].Freeze(); err != nil {
			t.Fatal(err)
		}
	}
	release(t, lock)
	for _, node := range []int{1, 3} {
		if err := m[node].Thaw(); err != nil {
			t.Fatal(err)
		}
		until(t, long/2, "the record is gone", func() bool {
			n, err := direct[node].Exists(t.Context(), lockKey("jobs/x")).Result()
			return err == nil && n == 0
		})
	}
}

// Each server is killed and loses its data, one after the other, while one holder keeps its lock.
func TestHolderOutlivesTheRestartOfAllServersOneByOne(t *testing.T) {
	m := forgetful(t)
	lock := acquire(t, m.open(t, patient()), "jobs/x")
	direct := clients(t, m.addresses())
	for i := range m {
		m.kill(i)
		m.start(t, i)
		until(t, 20*time.Second, "the server that forgot has the record again", func() bool {
			n, err := direct[i].Exists(t.Context(), lockKey("jobs/x")).Result()
			return err == nil && n == 1
		})
	}
	if err := lock.Check(); err != nil {
		t.Fatalf("one server at a time was away: %v", err)
	}
	if _, err := lockstep.TryAcquire(t.Context(), m.open(t, patient()), "jobs/x"); !errors.Is(err, lockstep.ErrBusy) {
		t.Errorf("try of a held lock: %v, want ErrBusy", err)
	}
	release(t, lock)
}

func TestMetadataAndOwnerAreShownByAMajority(t *testing.T) {
	m := durable(t)
	l := m.open(t, config())
	lock := acquire(t, l, "jobs/x", lockstep.WithMetadata(map[string]string{"purpose": "a b  c"}))
	m.kill(1, 2)
	state, err := l.Inspect(t.Context(), "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Holders) != 1 || state.Holders[0].Metadata["purpose"] != "a b  c" || state.Holders[0].Token != lock.Token() || state.NextToken != lock.Token()+1 {
		t.Errorf("state %+v", state)
	}
	record, err := clients(t, m.addresses())[0].Get(t.Context(), lockKey("jobs/x")).Result()
	if err != nil {
		t.Fatal(err)
	}
	if secret := strings.Fields(record)[0]; slices.ContainsFunc(state.Holders, func(c lockstep.Claim) bool { return strings.Contains(c.Owner, secret) }) {
		t.Error("the owner gives the secret away")
	}
	m.kill(0)
	if _, err := l.Inspect(t.Context(), "jobs/x"); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("inspect with three down: %v, want ErrUnavailable", err)
	}
}
