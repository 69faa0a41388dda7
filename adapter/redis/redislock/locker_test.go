package redislock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redislock"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

func TestBadConfigIsRefusedWithTheFieldThatIsWrong(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	endless := redis.NewClient(&redis.Options{ReadTimeout: -1})
	defer endless.Close()
	for _, c := range []struct {
		rdb   redis.UniversalClient
		cfg   redislock.Config
		field string
	}{
		{nil, redislock.Config{}, "client"},
		{endless, redislock.Config{}, "ReadTimeout"},
		{rdb, redislock.Config{TTL: time.Millisecond}, "ttl"},
		{rdb, redislock.Config{TTL: time.Hour}, "ttl"},
		{rdb, redislock.Config{UnavailableAfter: time.Millisecond}, "UnavailableAfter"},
		{rdb, redislock.Config{KeyPrefix: "a{b}"}, "key prefix"},
		{rdb, redislock.Config{KeyPrefix: "a b"}, "key prefix"},
		{rdb, redislock.Config{KeyPrefix: strings.Repeat("x", 65)}, "key prefix"},
		{rdb, redislock.Config{Eviction: 9}, "eviction"},
	} {
		if _, err := redislock.New(c.rdb, c.cfg); !errors.Is(err, lockstep.ErrInvalid) || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%+v: %v, want ErrInvalid about %s", c.cfg, err, c.field)
		}
	}
}

func TestAServerThatMayEvictIsRefusedUnlessItIsAccepted(t *testing.T) {
	s := startServer(t, redisserver.Config{Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}})
	_, err := openOn(t, s).Acquire(t.Context(), "job")
	if !errors.Is(err, lockstep.ErrUnsupported) || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("acquire: %v, want ErrUnsupported with the policy", err)
	}
	accepting := open(t, connect(t, s.Address()), redislock.Config{Eviction: redislock.AcceptEviction})
	release(t, acquire(t, accepting, "job"))
	if notes := strings.Join(accepting.Capabilities().Notes, "\n"); !strings.Contains(notes, "may evict locks") {
		t.Errorf("the notes do not say that locks may be evicted:\n%s", notes)
	}
}

func TestAUserWithTheDocumentedRightsCanLock(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	admin := connect(t, s.Address())
	rights := "ACL SETUSER worker on >secret resetkeys ~lockstep:* resetchannels -@all " +
		"+eval +evalsha +time +exists +get +set +hmget +hget +hset +pexpire +del +hello +client"
	var words []any
	for word := range strings.FieldsSeq(rights) {
		words = append(words, word)
	}
	if err := admin.Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.Address(), Username: "worker", Password: "secret"})
	defer rdb.Close()
	a, b := open(t, rdb, redislock.Config{}), open(t, rdb, redislock.Config{})
	held := acquire(t, a, "job")
	time.AfterFunc(200*time.Millisecond, func() { held.Release(t.Context()) })
	release(t, acquire(t, b, "job")) // by polling: it may not subscribe
	if state, err := a.Inspect(t.Context(), "job"); err != nil || len(state.Holders) != 0 {
		t.Errorf("inspect: %+v, %v", state, err)
	}
}

func TestAWrongPasswordIsUnavailableAndSaysWhy(t *testing.T) {
	s := startServer(t, redisserver.Config{Args: []string{"--requirepass", "right"}})
	rdb := redis.NewClient(&redis.Options{Addr: s.Address(), Password: "wrong"})
	defer rdb.Close()
	_, err := lockstep.TryAcquire(t.Context(), open(t, rdb, redislock.Config{}), "job")
	if !errors.Is(err, lockstep.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("try: %v, want ErrUnavailable with the server's reason", err)
	}
}

func TestAForeignKeyIsRefusedAndLeftAlone(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	l, admin := openOn(t, s), connect(t, s.Address())
	if err := admin.Set(t.Context(), l.Key("job"), "mine", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), "job"); !errors.Is(err, lockstep.ErrInvalid) || !strings.Contains(err.Error(), l.Key("job")) {
		t.Errorf("acquire: %v, want ErrInvalid with the key", err)
	}
	if got := admin.Get(t.Context(), l.Key("job")).Val(); got != "mine" {
		t.Errorf("the key holds %q", got)
	}
}

// clusterOf creates a Cluster of one node. Like a larger one, it refuses a script whose keys are in
// two slots.
func clusterOf(t *testing.T) *redis.ClusterClient {
	t.Helper()
	s := startServer(t, redisserver.Config{Args: []string{"--cluster-enabled", "yes"}})
	node := connect(t, s.Address())
	if err := node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); !strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the cluster does not come up")
		}
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Address()}})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func TestLocksWorkOnACluster(t *testing.T) {
	rdb := clusterOf(t)
	a, b := open(t, rdb, redislock.Config{}), open(t, rdb, redislock.Config{})
	for _, name := range []string{"job", "{a}/b", "a}{b", "}", "{", "{}", "ключ/{x"} {
		held := acquire(t, a, name)
		expectBusy(t, b, name)
		time.AfterFunc(50*time.Millisecond, func() { held.Release(t.Context()) })
		after := acquire(t, b, name)
		if after.Token() <= held.Token() {
			t.Errorf("%s: token %d after %d", name, after.Token(), held.Token())
		}
		release(t, after)
	}
}

func TestNothingStaysBehindButTheCounters(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	l, admin := openOn(t, s), connect(t, s.Address())
	for i := range 600 {
		release(t, acquire(t, l, fmt.Sprintf("job/%d", i)))
	}
	keys, err := admin.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) == 0 || len(keys) > 256 {
		t.Errorf("%d keys are left, want at most 256: %v", len(keys), err)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "lockstep:{") || !strings.HasSuffix(key, "}:token") {
			t.Errorf("key %s is left", key)
		}
	}
}

func TestTheSecretOfAClaimIsShownToNobody(t *testing.T) {
	s := startServer(t, redisserver.Config{})
	l, admin := openOn(t, s), connect(t, s.Address())
	held := acquire(t, l, "job")
	secret := admin.HGet(t.Context(), l.Key("job"), "id").Val()
	state, err := l.Inspect(t.Context(), "job")
	if err != nil || secret == "" {
		t.Fatalf("state %+v, %v, secret of %d bytes", state, err, len(secret))
	}
	_, busy := lockstep.TryAcquire(t.Context(), l, "job")
	if shown := fmt.Sprintf("%+v %+v", state, busy); strings.Contains(shown, secret) {
		t.Errorf("the secret is shown: %s", shown)
	}
	release(t, held)
}
