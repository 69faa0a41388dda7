package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

// founders makes every replica know the three founders.
func founders(cfg *Config) {
	cfg.AnyLevel = false
	for id := range uint64(3) {
		cfg.Founders = append(cfg.Founders, command.Member{
			ID: id + 1, Name: fmt.Sprint("n", id+1), Address: fmt.Sprint("10.0.0.", id+1), Founder: true,
		})
	}
}

// introduce makes all running replicas meet each other.
func introduce(c *cluster, level uint32) {
	for _, h := range c.hosts {
		for _, other := range c.hosts {
			if h.r != nil && other.r != nil {
				h.inputs = append(h.inputs, Met{ID: other.id, Instance: [16]byte{byte(other.id)}, Level: level})
			}
		}
	}
}

func tokens(c *cluster) bool {
	for _, h := range c.hosts {
		if h.r != nil && h.r.Status().Counts.NextToken != 0 {
			return true
		}
	}
	return false
}

// serves waits for a leader, although nothing is granted.
func serves(c *cluster) (leader *host) {
	c.t.Helper()
	c.until(10*second, "a leader that serves", func() bool {
		for _, h := range c.hosts {
			if h.r != nil && h.r.Status().Serving {
				leader = h
				return true
			}
		}
		return false
	})
	return leader
}

// waits checks that nothing is granted for a while, and what reason the leader gives.
func waits(t *testing.T, c *cluster, want string) {
	t.Helper()
	c.run(5 * second)
	if tokens(c) {
		t.Error("tokens are given")
	}
	if why := serves(c).r.Status().NoFloor; !strings.Contains(why, want) {
		t.Errorf("the leader says %q, want %q", why, want)
	}
}

func TestTheFirstTokenFloorWaitsForEveryFounder(t *testing.T) {
	c := newCluster(t, 3, founders)
	c.crash(c.host(3))
	introduce(c, command.FeatureLevel)
	waits(t, c, "n3 (10.0.0.3)") // has not been met
	c.start(c.host(3))
	c.host(3).disk.stuck = true
	introduce(c, command.FeatureLevel)
	waits(t, c, "n3 (10.0.0.3)") // does not have the birth on its disk
	if serves(c).r.Birth() == (command.BirthID{}) {
		t.Error("no birth is logged")
	}
	c.host(3).disk.stuck = false
	c.until(5*second, "tokens", func() bool { return tokens(c) })
	c.run(second)
	for _, h := range c.hosts {
		if b := h.r.Birth(); b != c.host(1).r.Birth() || b == (command.BirthID{}) {
			t.Errorf("replica %d has birth %v, replica 1 %v", h.id, b, c.host(1).r.Birth())
		}
	}
}

func TestAFounderThatIsNamedMissingIsNotWaitedFor(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { founders(cfg); cfg.Missing = []uint64{3} })
	c.crash(c.host(3))
	introduce(c, command.FeatureLevel)
	c.until(10*second, "tokens", func() bool { return tokens(c) })
	c.start(c.host(3))
	introduce(c, command.FeatureLevel)
	c.until(10*second, "the birth at the late one", func() bool { return c.host(3).r.Birth() == c.host(1).r.Birth() })
}

func TestALaterLeaderKeepsTheBirth(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.host(3).disk.stuck = true
	first := serves(c)
	c.until(5*second, "birth", func() bool { return first.r.Birth() != (command.BirthID{}) })
	born := first.r.Birth()
	if tokens(c) {
		t.Fatal("tokens before the third has the birth")
	}
	first.inputs = append(first.inputs, HandOver{To: 3 - first.id})
	c.until(5*second, "the other leads", func() bool { return c.host(3 - first.id).r.Status().Serving })
	c.host(3).disk.stuck = false
	c.until(5*second, "tokens", func() bool { return tokens(c) })
	if got := c.leader().r.Birth(); got != born {
		t.Errorf("birth %v, was %v", got, born)
	}
}

// A founder of an older build cannot apply a birth: the cluster then begins at that founder's
// level, as always.
func TestWithAFounderOfLevelOneTheClusterBeginsThere(t *testing.T) {
	c := newCluster(t, 3, founders)
	introduce(c, command.FeatureLevel)
	for _, h := range c.hosts {
		h.inputs = append(h.inputs, Met{ID: 3, Instance: [16]byte{3}})
	}
	c.until(10*second, "tokens", func() bool { return tokens(c) })
	c.run(second)
	m := c.leader().r.machine
	if m.Limits().FeatureLevel != 1 || m.Birth() != (command.BirthID{}) {
		t.Errorf("feature level %d, birth %q", m.Limits().FeatureLevel, m.Birth())
	}
}

// A leader that has joined knows no founders, but asks for the voters' levels all the same.
func TestALeaderThatHasJoinedAsksTheLevels(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.AnyLevel = false })
	waits(t, c, "have not connected")
	if b := serves(c).r.Birth(); b != (command.BirthID{}) {
		t.Errorf("birth %v is logged", b)
	}
	introduce(c, command.FeatureLevel)
	c.until(10*second, "tokens", func() bool { return tokens(c) })
}

// As long as a restored cluster has not met its members, what it logs does not lower its feature
// level.
func TestARestoredClusterKeepsItsLevelWhileMembersAreMissing(t *testing.T) {
	limits := command.DefaultLimits()
	limits.FeatureLevel = command.BirthLevel
	restored := renewed(500, wall0, 0)
	c := newCluster(t, 3, func(cfg *Config) {
		restored(cfg)
		founders(cfg)
		cfg.Machine.Apply(cfg.Machine.Index()+1, 1, &command.Entry{Commands: []command.Command{command.SetLimits{Limits: limits}}})
		cfg.Snapshot.Index = new(cfg.Machine.Index())
	})
	h := serves(c)
	was := h.r.machine.Limits()
	if was.FeatureLevel < command.BirthLevel {
		t.Fatalf("the backup has feature level %d", was.FeatureLevel)
	}
	for _, founding := range h.r.founding.birthCommands() {
		if set, ok := founding.(command.SetLimits); ok {
			t.Errorf("limits %+v are logged", set.Limits)
		}
	}
}

// A restored cluster is a new one: it begins at the newest level that its founders know, with its
// own birth.
func TestARestoredClusterHasABirthOfItsOwn(t *testing.T) {
	restored := renewed(500, wall0, 0)
	born := func(seed uint64) command.BirthID {
		c := newCluster(t, 3, func(cfg *Config) {
			restored(cfg)
			cfg.Rand = &fixedReader{splitmix{seed}}
		})
		c.until(10*second, "a floor", func() bool { return !serves(c).r.Recovery().FloorDue })
		c.open(c.leader(), ttl).acquire("job")
		if level := c.leader().r.machine.Limits().FeatureLevel; level != command.FeatureLevel {
			t.Errorf("feature level %d", level)
		}
		return c.leader().r.Birth()
	}
	if first, second := born(1), born(2); first == second || first == (command.BirthID{}) || second == (command.BirthID{}) {
		t.Errorf("births %q and %q of one backup", first, second)
	}
}
