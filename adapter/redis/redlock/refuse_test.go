package redlock_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redlock"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/internal/testbed/redisserver"
)

func TestBadConfigurationsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	nowhere := func(addresses ...string) (all []*redis.Client) {
		for _, a := range addresses {
			all = append(all, connect(a))
		}
		return all
	}
	three := nowhere("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
	sentinels := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:9"}})
	defer sentinels.Close()
	for name, c := range map[string]struct {
		nodes []*redis.Client
		cfg   redlock.Config
		want  string
	}{
		"no node":                  {nil, redlock.Config{}, "odd number of masters from 3 to 9"},
		"an even number":           {append(nowhere("127.0.0.1:4"), three...), redlock.Config{}, "odd number"},
		"too many":                 {slicesRepeat(three[:1], 11), redlock.Config{}, "3 to 9"},
		"a nil client":             {[]*redis.Client{three[0], nil, three[1]}, redlock.Config{}, "node 2"},
		"one address twice":        {[]*redis.Client{three[0], three[1], three[0]}, redlock.Config{}, "node 3 (127.0.0.1:1): is the same server as node 1"},
		"sentinels":                {[]*redis.Client{three[0], three[1], sentinels}, redlock.Config{}, "sentinels"},
		"a short ttl":              {three, redlock.Config{TTL: time.Millisecond}, "ttl"},
		"a node timeout too long":  {three, redlock.Config{TTL: 6 * time.Second, NodeTimeout: 2 * time.Second}, "node timeout 2s: must be 5ms to a sixth of the ttl, here 1s"},
		"a node timeout too short": {three, redlock.Config{NodeTimeout: 1}, "node timeout"},
		"a negative patience":      {three, redlock.Config{UnavailableAfter: -1}, "unavailable after"},
		"a prefix with a space":    {three, redlock.Config{KeyPrefix: "a b"}, "key prefix"},
		"a prefix too long":        {three, redlock.Config{KeyPrefix: strings.Repeat("x", 129)}, "1 to 128 bytes"},
	} {
		_, err := redlock.New(c.nodes, c.cfg)
		if !errors.Is(err, lockstep.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want ErrInvalid that says %q", name, err, c.want)
		}
	}
	for _, c := range three {
		c.Close()
	}
}

func slicesRepeat(nodes []*redis.Client, count int) (all []*redis.Client) {
	for range count {
		all = append(all, nodes...)
	}
	return all
}

// refused checks that the first use names the node and says why.
func refused(t *testing.T, addresses []string, want string) {
	t.Helper()
	l := open(t, clients(t, addresses), config())
	var err error
	until(t, 10*time.Second, "the node has been asked what it is", func() bool {
		_, err = lockstep.TryAcquire(t.Context(), l, "jobs/x")
		return !errors.Is(err, lockstep.ErrUnavailable) && !errors.Is(err, lockstep.ErrUncertain)
	})
	if !errors.Is(err, lockstep.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want ErrInvalid that says %q", err, want)
	}
}

func TestUnfitServersAreRefusedAtTheFirstUse(t *testing.T) {
	good := startMasters(t, 2, redisserver.Config{})
	for name, c := range map[string]struct {
		cfg  redisserver.Config
		want string
	}{
		"a server that evicts":  {redisserver.Config{Args: []string{"--maxmemory-policy", "allkeys-lru"}}, `maxmemory-policy "allkeys-lru", must be noeviction`},
		"a replica":             {redisserver.Config{ReplicaOf: good[0].Address()}, "is a replica"},
		"a node of a cluster":   {redisserver.Config{Args: []string{"--cluster-enabled", "yes"}}, "Redis Cluster"},
		"a replica that writes": {redisserver.Config{ReplicaOf: good[0].Address(), Args: []string{"--replica-read-only", "no"}}, "is a replica"},
		"volatile keys may go":  {redisserver.Config{Args: []string{"--maxmemory-policy", "volatile-ttl"}}, "noeviction"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := startMasters(t, 1, c.cfg)
			refused(t, []string{good[0].Address(), bad[0].Address(), good[1].Address()}, "node 2 ("+bad[0].Address()+"): ")
			refused(t, []string{good[0].Address(), bad[0].Address(), good[1].Address()}, c.want)
		})
	}
}

func TestTwoWaysToOneServerAreRefused(t *testing.T) {
	good := startMasters(t, 2, redisserver.Config{})
	p, err := testbed.NewProxy(good[1].Address())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l := open(t, clients(t, []string{good[0].Address(), good[1].Address(), p.Address()}), config())
	until(t, 10*time.Second, "the two are found to be one", func() bool {
		_, err := lockstep.TryAcquire(t.Context(), l, "jobs/x")
		return errors.Is(err, lockstep.ErrInvalid) && strings.Contains(err.Error(), "same server as node")
	})
}

// A logBook keeps what is logged.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestServersThatDoNotSyncAreWarnedOfOnce(t *testing.T) {
	book := &logBook{}
	careless := startMasters(t, 1, redisserver.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}})
	m := append(startMasters(t, 1, redisserver.Config{Persistence: redisserver.AppendAlways}), append(careless, startMasters(t, 1, redisserver.Config{})...)...)
	c := config()
	c.Logger = slog.New(slog.NewTextHandler(book, nil))
	l := m.open(t, c)
	for range 3 {
		release(t, acquire(t, l, "jobs/x"))
	}
	until(t, 10*time.Second, "both are warned of", func() bool {
		return strings.Contains(book.String(), "appendfsync=everysec") && strings.Contains(book.String(), "appendonly=no")
	})
	if n := strings.Count(book.String(), "level=WARN"); n != 2 {
		t.Errorf("%d warnings:\n%s", n, book)
	}
	if strings.Contains(book.String(), m[0].Address()) {
		t.Errorf("the server that syncs is warned of:\n%s", book)
	}
}
