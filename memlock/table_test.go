package memlock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// TestTableKeepsItsRules makes random claims on a few names and checks the whole table after each
// step.
func TestTableKeepsItsRules(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := tableGame{r: r, table: newTable(), session: &session{id: "s"}}
		for step := range 150 {
			if broken := g.step(); broken != "" {
				t.Fatalf("seed %d, step %d: %s", seed, step, broken)
			}
		}
	}
}

type tableGame struct {
	r       *rand.Rand
	table   table
	session *session
	claims  []*claim // claims in the table, in order of arrival
	last    lockstep.Token
}

var gameNames = []string{"a/1", "a/2", "a/3"}

func (g *tableGame) step() (broken string) {
	var c *claim
	if len(g.claims) > 0 && g.r.IntN(2) == 0 {
		c = g.claims[g.r.IntN(len(g.claims))]
		g.table.remove(c)
		g.claims = without(g.claims, c)
	} else {
		c = &claim{session: g.session, cfg: g.config()}
		if g.table.add(c, time.Time{}) != nil {
			return g.judge() // another mode: nothing may have changed
		}
		g.claims = append(g.claims, c)
	}
	for _, granted := range g.table.settle(time.Time{}, c.cfg.Names...) {
		if granted.cfg.Mode == lockstep.Exclusive && granted.token <= g.last {
			return fmt.Sprintf("token %d after %d", granted.token, g.last)
		}
		g.last = max(g.last, granted.token)
	}
	return g.judge()
}

func (g *tableGame) config() lockstep.AcquireConfig {
	names := slices.Clone(gameNames)
	g.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	switch g.r.IntN(4) {
	case 0:
		return lockstep.AcquireConfig{Names: names[:1], Mode: lockstep.Shared}
	case 1:
		return lockstep.AcquireConfig{Names: names[:1], Mode: lockstep.Permits, Weight: 1 + g.r.IntN(3), Capacity: 3}
	default:
		return lockstep.AcquireConfig{Names: names[:1+g.r.IntN(len(names))]}
	}
}

func (g *tableGame) judge() (broken string) {
	for i, c := range g.claims {
		if c.state == granted {
			continue
		}
		blocked := false
		for _, name := range c.cfg.Names {
			q := g.table.queues[name]
			if !slices.Contains(q.waiters, c) {
				return fmt.Sprintf("claim %d waits outside the queue of %s", i, name)
			}
			blocked = blocked || q.waiters[0] != c || !q.fits(c)
		}
		if !blocked {
			return fmt.Sprintf("claim %d could be granted but is waiting", i)
		}
	}
	for name, q := range g.table.queues {
		if broken := g.judgeQueue(q); broken != "" {
			return name + ": " + broken
		}
	}
	return ""
}

func (g *tableGame) judgeQueue(q *queue) (broken string) {
	exclusive, weight := 0, 0
	for _, h := range q.holders {
		weight += h.cfg.Weight
		if h.cfg.Mode == lockstep.Exclusive {
			exclusive++
		}
		if !slices.Contains(g.claims, h) {
			return "a holder whose claim was removed"
		}
	}
	switch {
	case len(q.holders)+len(q.waiters) == 0:
		return "a queue without claims"
	case exclusive > 0 && len(q.holders) > 1:
		return fmt.Sprintf("%d holders, %d of them exclusive", len(q.holders), exclusive)
	case weight > q.capacity():
		return fmt.Sprintf("%d of %d permits are held", weight, q.capacity())
	}
	order := func(a, b *claim) int { return slices.Index(g.claims, a) - slices.Index(g.claims, b) }
	if !slices.IsSortedFunc(q.waiters, order) {
		return "waiters are not in the order of their arrival"
	}
	return ""
}
