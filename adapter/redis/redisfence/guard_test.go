package redisfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redisfence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

// push is work whose repetition is visible.
func push(key, value string) redisfence.Work {
	return redisfence.Work{Lua: `redis.call('RPUSH', KEYS[1], ARGV[1])`, Keys: []string{key}, Args: []string{value}}
}

func TestWhatTheClientSendsAgainCountsOnce(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	a, b := open(t, s.Address(), "list", 3), open(t, s.Address(), "list", 3)
	key := a.Tag("list") + ":list"
	must(t, a.Enter(t.Context(), grant(7)))
	for _, step := range []fence.Step{fence.WriteOnce, fence.Write} {
		a.line.meet(loseReply)
		must(t, a.Run(t.Context(), "list", grant(7), step, push(key, step.String())))
	}
	if lost := a.line.repliesLost(); lost != 2 {
		t.Fatalf("%d replies were lost, want 2: the test tests nothing", lost)
	}
	got, err := connect(t, s.Address()).LRange(t.Context(), key, 0, -1).Result()
	if err != nil || strings.Join(got, ",") != "write once,write" {
		t.Errorf("the list is %q, %v, want each write once", got, err)
	}
	if err := b.Run(t.Context(), "list", grant(6), fence.Write, push(key, "late")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("an older grant runs work: %v", err)
	}
}

func TestWorkThatFailsDoesNotCountAsWritten(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	r := open(t, s.Address(), "x", 3)
	for _, lua := range []string{
		`return redis.error_reply('MINE no such account')`,
		`error('no such account')`,
		`redis.call('SET', KEYS[1], '1'); redis.call('RPUSH', KEYS[1], '2')`,
	} {
		err := r.Run(t.Context(), "x", grant(7), fence.WriteOnce, redisfence.Work{Lua: lua, Keys: []string{r.DataKey("x")}})
		if err == nil || fence.Refused(err) || errors.Is(err, lockstep.ErrUncertain) || errors.Is(err, lockstep.ErrUnavailable) {
			t.Errorf("%s: %v, want the error of the work", lua, err)
		}
	}
	m, err := r.Mark(t.Context(), "x")
	if want := (fence.Mark{Backend: "etcd:test", Lock: "reports", Token: 7}); err != nil || m != want {
		t.Errorf("mark %+v, %v, want %+v", m, err, want)
	}
	must(t, r.WriteOnce(t.Context(), grant(7), []byte("done")))
}

func TestResetGivesTheResourceToAnotherLock(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	r := open(t, s.Address(), "x", 3)
	must(t, r.Write(t.Context(), grant(lockstep.MaxToken), []byte("old")))
	moved := fence.Grant{Backend: "native:prod", Lock: "reports", Token: 1}
	if err := r.Write(t.Context(), moved, nil); !errors.Is(err, fence.ErrForeign) {
		t.Fatalf("another backend: %v", err)
	}
	to := fence.Mark{Backend: moved.Backend, Lock: moved.Lock}
	if err := r.Reset(t.Context(), "x", fence.Mark{}, to); !errors.Is(err, fence.ErrMoved) {
		t.Errorf("reset of a mark that is not there: %v", err)
	}
	present, err := r.Mark(t.Context(), "x")
	must(t, err)
	must(t, r.Reset(t.Context(), "x", present, to))
	must(t, r.Write(t.Context(), moved, []byte("new")))
	if err := r.Write(t.Context(), grant(lockstep.MaxToken), nil); !errors.Is(err, fence.ErrForeign) {
		t.Errorf("the lock before: %v", err)
	}
	must(t, r.Reset(t.Context(), "fresh", fence.Mark{}, to)) // bound before its first grant
}

func TestMarksThatCannotBeReadAdmitNobody(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	r, rdb := open(t, s.Address(), "x", 3), connect(t, s.Address())
	key := strings.Replace(r.DataKey("x"), ":data:", ":mark:", 1)
	for name, plant := range map[string]func(){
		"a string":    func() { rdb.Set(t.Context(), key, "7", 0) },
		"half a mark": func() { rdb.HSet(t.Context(), key, "token", "7") },
		"no number": func() {
			rdb.HSet(t.Context(), key, "backend", "etcd:test", "lock", "reports", "token", "nan", "written", "0")
		},
		"more than 2^53-1": func() {
			rdb.HSet(t.Context(), key, "backend", "etcd:test", "lock", "reports", "token", "12345678901234567", "written", "0")
		},
	} {
		rdb.Del(t.Context(), key)
		plant()
		if err := r.Write(t.Context(), grant(9), []byte("x")); err == nil || fence.Refused(err) {
			t.Errorf("%s: %v, want an error that is no verdict", name, err)
		}
	}
	if n := rdb.Exists(t.Context(), r.DataKey("x")).Val(); n != 0 {
		t.Error("data were written")
	}
}

func TestServersThatEvictMarksAreRefused(t *testing.T) {
	for policy, want := range map[string]error{"allkeys-lru": lockstep.ErrUnsupported, "volatile-lru": nil, "noeviction": nil} {
		s := startServer(t, redisserver.Config{Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", policy}})
		if err := open(t, s.Address(), "x", 3).Write(t.Context(), grant(1), nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", policy, err, want)
		}
	}
}

func TestFullMemoryIsAQuotaAndChangesNothing(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	r, rdb := open(t, s.Address(), "x", 3), connect(t, s.Address())
	must(t, r.Write(t.Context(), grant(1), []byte("old")))
	must(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := r.Write(t.Context(), grant(2), []byte("new")); !errors.Is(err, lockstep.ErrQuota) {
		t.Errorf("write: %v, want ErrQuota", err)
	}
	must(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	if m, err := r.Mark(t.Context(), "x"); err != nil || m.Token != 1 {
		t.Errorf("mark %+v, %v, want token 1", m, err)
	}
}

func TestErrorsSayWhatIsCertain(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	r := open(t, s.Address(), "x", -1)
	must(t, r.Write(t.Context(), grant(1), []byte("old")))
	r.line.meet(loseReply)
	if err := r.Write(t.Context(), grant(1), []byte("new")); !errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("a lost reply: %v, want ErrUncertain", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Write(ended, grant(1), nil); !errors.Is(err, context.Canceled) || errors.Is(err, lockstep.ErrUncertain) {
		t.Errorf("before the sending: %v, want Canceled", err)
	}
	s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 2 { // the first may meet the connection that has just ended
		if err := r.Write(ctx, grant(1), nil); !errors.Is(err, lockstep.ErrUnavailable) && !errors.Is(err, lockstep.ErrUncertain) {
			t.Errorf("no server: %v, want ErrUnavailable", err)
		}
	}
	if _, err := r.Read(ctx); !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("read without a server: %v, want ErrUnavailable", err)
	}
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}) // nothing is listening there
	t.Cleanup(func() { rdb.Close() })
	g := newGuard(t, rdb, redisfence.Config{})
	for name, err := range map[string]error{
		"resource": g.Write(t.Context(), "", grant(1), nil),
		"backend":  g.Write(t.Context(), "x", fence.Grant{Lock: "l", Token: 1}, nil),
		"step":     g.Run(t.Context(), "x", grant(1), fence.Enter, push("k", "v")),
		"lua":      g.Run(t.Context(), "x", grant(1), fence.Write, redisfence.Work{}),
		"keys":     g.Run(t.Context(), "x", grant(1), fence.Write, redisfence.Work{Lua: "x", Args: make([]string, 1001)}),
		"mark":     g.Run(t.Context(), "x", grant(1), fence.Write, push(strings.Replace(g.DataKey("x"), ":data:", ":mark:", 1), "v")),
		"reset":    g.Reset(t.Context(), "x", fence.Mark{}, fence.Mark{}),
	} {
		if !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	for _, prefix := range []string{"a b", "a{b", strings.Repeat("x", 65)} {
		if _, err := redisfence.New(rdb, redisfence.Config{KeyPrefix: prefix}); !errors.Is(err, lockstep.ErrInvalid) {
			t.Errorf("prefix %q: %v, want ErrInvalid", prefix, err)
		}
	}
}

// TestKeysAreTheProtocol: the keys are shared by programs of all versions and must not change.
func TestKeysAreTheProtocol(t *testing.T) {
	g := newGuard(t, connect(t, "127.0.0.1:1"), redisfence.Config{})
	if got, want := g.DataKey("billing/nightly"), "lockstep-fence:{26}:data:billing/nightly"; got != want {
		t.Errorf("key %q, want %q", got, want)
	}
}

func TestObserverIsToldOfVerdicts(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	var counts fence.Counts
	g := newGuard(t, connect(t, s.Address()), redisfence.Config{Observer: &counts})
	for _, token := range []lockstep.Token{7, 8, 7, 0} {
		g.Write(t.Context(), "x", grant(token), nil)
	}
	if got, want := counts.Tally(), (fence.Tally{Accepted: 2, Stale: 1, NoToken: 1}); got != want {
		t.Errorf("tally %+v, want %+v", got, want)
	}
}

// clusterOf creates a Cluster of one node. Like a larger one, it refuses a script whose keys are in
// two slots.
func clusterOf(t *testing.T) *redis.ClusterClient {
	t.Helper()
	s := startServer(t, redisserver.Config{Args: []string{"--cluster-enabled", "yes"}})
	node := connect(t, s.Address())
	must(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	for end := time.Now().Add(20 * time.Second); !strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the cluster does not come up")
		}
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Address()}})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func TestGuardsWorkOnAClusterWhateverTheNames(t *testing.T) {
	g := newGuard(t, clusterOf(t), redisfence.Config{})
	for _, name := range []string{"report", "{a}/b", "a}{b", "}", "{", "{}", "ключ/{x"} {
		must(t, g.Write(t.Context(), name, grant(7), []byte(name)))
		must(t, g.Run(t.Context(), name, grant(8), fence.Write, push("list:"+g.Tag(name), name)))
		if err := g.Delete(t.Context(), name, grant(7)); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: %v, want ErrStale", name, err)
		}
		if value, err := g.Read(t.Context(), name); err != nil || string(value) != name {
			t.Errorf("%s: %q, %v", name, value, err)
		}
	}
}

// TestAPromotedReplicaKnowsTheMarksThatItHasCopied and no others, as the documentation warns.
func TestAPromotedReplicaKnowsTheMarksThatItHasCopied(t *testing.T) {
	first := startServer(t, redisserver.Config{})
	between, err := testbed.NewProxy(first.Address())
	must(t, err)
	t.Cleanup(between.Close)
	second := startServer(t, redisserver.Config{ReplicaOf: between.Address()})
	r, promoted := open(t, first.Address(), "x", 3), open(t, second.Address(), "x", 3)
	must(t, r.Enter(t.Context(), grant(8)))
	admin := connect(t, second.Address())
	mark := strings.Replace(r.DataKey("x"), ":data:", ":mark:", 1)
	waitFor(t, "the replica copies the mark", func() bool { return admin.HGet(t.Context(), mark, "token").Val() == "8" })
	between.Cut()
	must(t, r.Enter(t.Context(), grant(9)))
	first.Kill()
	must(t, admin.ReplicaOf(t.Context(), "NO", "ONE").Err())

	if err := promoted.Write(t.Context(), grant(7), nil); !errors.Is(err, fence.ErrStale) {
		t.Errorf("older than the copied mark: %v, want ErrStale", err)
	}
	if err := promoted.Write(t.Context(), grant(8), nil); err != nil {
		t.Errorf("older than a mark that was lost: %v; if this is refused now, the documentation is out of date", err)
	}
	must(t, promoted.Enter(t.Context(), grant(9)))
	if err := promoted.Write(t.Context(), grant(8), nil); !errors.Is(err, fence.ErrStale) {
		t.Errorf("after the newer holder has entered again: %v, want ErrStale", err)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
