package replica

import (
	"testing"

	"github.com/lockstep-dev/lockstep/server/lead"
)

// newZoned returns a cluster of five nodes in the zones a, a, b, b, c that know each other; the
// leader should be in b.
func newZoned(t *testing.T) *cluster {
	zones := []string{"a", "a", "b", "b", "c"}
	c := newCluster(t, 5, func(cfg *Config) { cfg.Zone, cfg.LeaderZone = zones[cfg.ID-1], "b" })
	for _, h := range c.hosts {
		for i, zone := range zones {
			h.r.Step(Met{ID: uint64(i) + 1, Zone: zone})
		}
	}
	return c
}

func (c *cluster) leadsFor(h *host, d lead.Time, why string) {
	c.t.Helper()
	for end := c.now + d; c.now < end; c.tick() {
		if h.r.role != Leader {
			c.t.Fatalf("%d has lost leadership: %s", h.id, why)
		}
	}
}

func TestTheLeaderMovesToThePreferredZoneAndStaysThere(t *testing.T) {
	c := newZoned(t)
	h := c.lead(1)
	k := c.open(h, 60_000)
	k.acquire("job")
	c.leadsFor(h, 29*second, "it has just been elected")
	c.run(3 * second)
	next := c.leader(1)
	if next.r.cfg.Zone != "b" {
		t.Fatalf("%d of zone %s leads", next.id, next.r.cfg.Zone)
	}
	c.leadsFor(next, 70*second, "it is in the preferred zone")
}

func TestALeaderStaysWhileNobodyInThePreferredZoneIsUpAndCaughtUp(t *testing.T) {
	c := newZoned(t)
	h := c.lead(1)
	c.run(second)
	b := func(id uint64) bool { return id == 3 || id == 4 }
	c.cut = func(from, to uint64) bool { return b(from) != b(to) }
	c.leadsFor(h, 100*second, "nobody of zone b is up")
	c.cut = func(uint64, uint64) bool { return false }
	c.run(35 * second)
	if next := c.leader(); next.r.cfg.Zone != "b" {
		t.Errorf("%d of zone %s leads after zone b is back", next.id, next.r.cfg.Zone)
	}
}

func TestALeaderThatWasChosenForItsDiskIsNotMovedBackAtOnce(t *testing.T) {
	c := newZoned(t)
	h := c.lead(3)
	k := c.open(h, 60_000)
	h.disk.stuck = true
	b := c.host(4)
	b.disk.stuck = true
	k.send(k.acquireBody(spec("other")))
	c.run(2 * second)
	next := c.leader(3, 4)
	h.disk.stuck, b.disk.stuck = false, false
	c.leadsFor(next, 4*60*second, "it came by another's slow disk 4 minutes ago at most")
}

func TestAMajorityOfTheVotersInOneZoneIsFound(t *testing.T) {
	for _, c := range []struct {
		zones  []string
		zone   string
		voters int
	}{
		{[]string{"a", "a", "b", "b", "c"}, "", 0},
		{[]string{"a", "a", "a", "b", "c"}, "a", 3},
		{[]string{"a", "a"}, "a", 2},
		// Losing either zone loses the majority, but neither has one.
		{[]string{"a", "a", "b", "b"}, "", 0},
		{[]string{"", "", ""}, "", 0},
		{[]string{"a"}, "", 0},
		{nil, "", 0},
	} {
		if zone, voters := CrowdedZone(c.zones); zone != c.zone || voters != c.voters {
			t.Errorf("%q: %q with %d voters, want %q with %d", c.zones, zone, voters, c.zone, c.voters)
		}
	}
}
