package faulttest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
	"github.com/lockstep-dev/lockstep/election"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed"
	"github.com/lockstep-dev/lockstep/sim/faulttest"
)

var crowdSize = flag.Int("crowd.size", 800, "how many candidates TestACrowdOfCandidates has, 16 to 16000")

const (
	crowdGroups = 16
	crowdDeaths = 3
	crowdOffice = "crowd/office"
	crowdTTL    = 4 * time.Second
)

// A crowd campaigns for one name: groups of candidates that share a client each.
type crowd struct {
	t      *testing.T
	source fence.Source
	guard  *fence.Memory
	groups []*group

	mu struct {
		sync.Mutex
		inside lockstep.Token // of the running body; zero: none
		last   lockstep.Token
		terms  int
		dead   []lockstep.Token // tokens of terms in which the group died
	}
}

// A group lives and dies together, like the candidates of one process.
type group struct {
	number  int
	client  *client.Client
	proxies []*testbed.Proxy
	alive   context.Context
	die     context.CancelFunc
	dooms   int // number of the candidate whose leadership kills its group; -1: none
}

// TestACrowdOfCandidates queues many candidates for one name. Each leads once and ends, some resign
// first, and three times the leader dies with all the candidates of its client.
func TestACrowdOfCandidates(t *testing.T) {
	cluster := faulttest.Start(t, 3)
	gate := newClient(t, client.Config{Endpoints: cluster.Endpoints(), TTL: 60 * time.Second, UnavailableAfter: 30 * time.Second})
	closed, err := gate.Acquire(t.Context(), crowdOffice)
	if err != nil {
		t.Fatal(err)
	}
	c := newCrowd(t, cluster, gate)
	before := []int64{heapOf(t, cluster, 0), heapOf(t, cluster, 1), heapOf(t, cluster, 2)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var standing sync.WaitGroup
	asked := time.Now()
	for _, g := range c.groups {
		for i := range *crowdSize / crowdGroups {
			standing.Go(func() { c.stand(ctx, g, i) })
		}
	}
	waiting := *crowdSize / crowdGroups * crowdGroups
	awaitCrowd(t, cluster, waiting)
	t.Logf("%d candidates of %d sessions in the queue after %v", waiting, crowdGroups, time.Since(asked).Round(time.Millisecond))
	for i, heap := range before {
		grown := heapOf(t, cluster, i) - heap
		t.Logf("n%d: the heap has grown from %.1f MiB by %.1f MiB, %d bytes a candidate", i+1, mib(heap), mib(grown), grown/int64(waiting))
	}
	opened := time.Now()
	if err := closed.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	standing.Wait()
	c.check(ctx, waiting, time.Since(opened))
}

func newCrowd(t *testing.T, cluster *faulttest.Cluster, locker lockstep.Locker) *crowd {
	t.Helper()
	source, err := fence.For(locker, "faulttest", crowdOffice)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, source: source, guard: fence.NewMemory(0)}
	for i := range crowdGroups {
		g := &group{number: i, dooms: -1}
		if i < crowdDeaths {
			g.dooms = rand.IntN(*crowdSize / crowdGroups)
		}
		g.alive, g.die = context.WithCancel(t.Context())
		var behind []string
		for _, endpoint := range cluster.Endpoints() {
			p := faulttest.NewProxy(t, endpoint)
			g.proxies, behind = append(g.proxies, p), append(behind, p.Address())
		}
		g.client = newClient(t, client.Config{
			Endpoints: behind, TTL: crowdTTL, UnavailableAfter: 30 * time.Second, DialOptions: proxied(cluster.Endpoints(), behind),
		})
		c.groups = append(c.groups, g)
	}
	return c
}

func awaitCrowd(t *testing.T, cluster *faulttest.Cluster, count int) {
	t.Helper()
	admin, err := client.NewAdmin(client.Config{Endpoints: cluster.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		lock, err := admin.Lock(t.Context(), crowdOffice, 1)
		if err != nil {
			t.Fatal(err)
		}
		if lock.GetWaiterCount() == uint64(count) {
			return
		}
	}
	t.Fatalf("there were never %d candidates in the queue", count)
}

// stand runs one candidate until it has led undisturbed, or its group is dead.
func (c *crowd) stand(ctx context.Context, g *group, number int) {
	candidate, err := election.New(g.client, crowdOffice, election.Config{Identity: fmt.Sprintf("candidate-%02d-%05d", g.number, number)})
	if err != nil {
		c.t.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.alive, cancel)()
	resigns := rand.N(20) == 0
	err = candidate.Run(ctx, func(ctx context.Context, token lockstep.Token) error {
		c.begin(token)
		defer c.end(token)
		err := c.guard.Admit(ctx, "ledger", c.source.Grant(token), fence.WriteOnce)
		switch {
		case err != nil:
			c.t.Errorf("the leader of term %d was refused: %v", token, err)
		case number == g.dooms:
			c.death(ctx, g, token)
		case resigns:
			resigns = false
			return candidate.Resign()
		}
		return err
	})
	if err != nil && g.alive.Err() == nil {
		c.t.Errorf("run: %v", err)
	}
}

// death cuts a group off for good in the middle of a term.
func (c *crowd) death(ctx context.Context, g *group, token lockstep.Token) {
	for _, p := range g.proxies {
		p.Cut()
	}
	<-ctx.Done()
	g.die()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.dead = append(c.mu.dead, token)
}

func (c *crowd) begin(token lockstep.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.inside != 0 || token <= c.mu.last {
		c.t.Errorf("term %d began after term %d, while that of %d was not over", token, c.mu.last, c.mu.inside)
	}
	c.mu.inside, c.mu.last = token, token
	c.mu.terms++
}

func (c *crowd) end(token lockstep.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.inside == token {
		c.mu.inside = 0
	}
}

// check checks that all candidates that could lead have led, and that the dead no longer write.
func (c *crowd) check(ctx context.Context, waiting int, took time.Duration) {
	if ctx.Err() != nil {
		c.t.Fatalf("not all have led in time: %d terms of %d candidates", c.mu.terms, waiting)
	}
	late := 0
	for _, token := range c.mu.dead {
		if err := c.guard.Admit(ctx, "ledger", c.source.Grant(token), fence.Write); errors.Is(err, fence.ErrStale) {
			late++
		}
	}
	if len(c.mu.dead) != crowdDeaths || late != crowdDeaths {
		c.t.Errorf("%d leaders died, %d late writes were refused, want %d", len(c.mu.dead), late, crowdDeaths)
	}
	if least := waiting / crowdGroups * (crowdGroups - crowdDeaths); c.mu.terms < least {
		c.t.Errorf("%d terms, want at least %d", c.mu.terms, least)
	}
	c.t.Logf("%d terms in %v, none overlapped; %d leaders died with all of their client, and their late writes were refused",
		c.mu.terms, took.Round(10*time.Millisecond), crowdDeaths)
}
