package replica

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

func TestSeveralEntriesMayBeInFlight(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.InFlight = 3 })
	var floors int
	c.until(10*second, "floor", func() bool { // while clients are already asking
		for _, h := range c.hosts {
			c.send(h, lead.Request{Stream: 99, Body: lead.Open{TTL: 1}})
		}
		return c.hosts[0].r.Status().Counts.NextToken != 0
	})
	c.run(100 * ms)
	for _, a := range c.hosts[0].applied {
		if a.Entry != nil {
			for _, cmd := range a.Entry.Commands {
				if _, ok := cmd.(command.SetTokenFloor); ok {
					floors++
				}
			}
		}
	}
	if floors != 1 {
		t.Errorf("%d token floors", floors)
	}
	h := c.leader()
	k := c.open(h, 60_000)
	most := 0
	var tags []uint64
	for i := range 30 {
		tags = append(tags, k.send(k.acquireBody(spec("job"+string(rune('a'+i))))))
		c.tick()
		most = max(most, h.r.Status().InFlight)
	}
	for i, tag := range tags {
		if a, ok := c.answer(h, tag).(lead.Claimed); !ok || a.Claim.Seq != uint64(i+1) {
			t.Errorf("claim %d answered %+v", i+1, a)
		}
	}
	if most != 3 {
		t.Errorf("at most %d entries were in flight, want 3", most)
	}
}
