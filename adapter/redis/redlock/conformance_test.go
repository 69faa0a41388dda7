package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/redis/redlock"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/locktest"
)

// A network puts proxies between each Locker and all servers.
type network struct {
	servers masters

	mu      sync.Mutex
	proxies map[lockstep.Locker][]*testbed.Proxy
}

// A wired Locker has its own clients and proxies, which end with it.
type wired struct {
	*redlock.Locker
	end func()
}

// Close ends the Locker first: it still needs the network.
func (w *wired) Close(ctx context.Context) error {
	defer w.end()
	return w.Locker.Close(ctx)
}

func (n *network) open(t *testing.T) lockstep.Locker {
	t.Helper()
	var proxies []*testbed.Proxy
	var nodes []*redis.Client
	for _, address := range n.servers.addresses() {
		p, err := testbed.NewProxy(address)
		if err != nil {
			t.Fatal(err)
		}
		proxies = append(proxies, p)
		nodes = append(nodes, connect(p.Address()))
	}
	l, err := redlock.New(nodes, redlock.Config{TTL: 10 * time.Second, NodeTimeout: 1500 * time.Millisecond, UnavailableAfter: 15 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	w := &wired{l, sync.OnceFunc(func() {
		for i := range nodes {
			nodes[i].Close()
			proxies[i].Close()
		}
	})}
	t.Cleanup(func() { closeLocker(w) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxies[w] = proxies
	return w
}

func (n *network) of(l lockstep.Locker) []*testbed.Proxy {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proxies[l]
}

func (n *network) cut(_ *testing.T, l lockstep.Locker) {
	for _, p := range n.of(l) {
		p.Cut()
	}
}

func (n *network) heal(_ *testing.T, l lockstep.Locker) {
	for _, p := range n.of(l) {
		p.Heal()
	}
}

func TestConformance(t *testing.T) {
	t.Parallel() // with the model tests: most of the time it waits for leases
	servers := durable(t)
	net := &network{servers: servers, proxies: map[lockstep.Locker][]*testbed.Proxy{}}
	direct := clients(t, servers.addresses())
	locktest.Run(t, locktest.Backend{
		New: net.open,
		Server: locktest.Server{
			Cut: net.cut, Heal: net.heal,
			Restart: func(t *testing.T) {
				servers.kill(0, 1, 2, 3, 4)
				servers.start(t, 0, 1, 2, 3, 4)
			},
			Delete: func(t *testing.T, name string) {
				for _, c := range direct {
					if err := c.Del(context.Background(), lockKey(name)).Err(); err != nil {
						t.Fatal(err)
					}
				}
			},
		},
		Goroutines: 16, // each waiter asks five servers at least twice a second
		Slack:      5 * time.Second,
	})
}
