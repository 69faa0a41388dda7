package replica

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// begunAt makes a cluster that begins at a feature level, like builds that know no newer one.
func begunAt(t *testing.T, level uint32) *cluster {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Limits, cfg.Configured = command.DefaultLimits().At(level, command.Limits{}), "configuration"
	})
	c.until(10*second, "tokens", func() bool { return tokens(c) })
	// The founders have their table, and the leader a config of this build.
	for _, h := range c.hosts {
		h.r.cfg.Limits = command.DefaultLimits()
	}
	c.run(second)
	return c
}

func (c *cluster) raise(b lead.RaiseLevel) lead.Answer {
	c.t.Helper()
	return c.call(c.leader(), lead.Request{Stream: c.newStream(), Body: b})
}

func (c *cluster) refusedRaise(b lead.RaiseLevel, reason lead.Refusal, words ...string) {
	c.t.Helper()
	a, ok := c.raise(b).(lead.Refused)
	if !ok || a.Reason != reason {
		c.t.Fatalf("%+v answered %+v", b, a)
	}
	for _, word := range words {
		if !strings.Contains(a.Limit, word) {
			c.t.Errorf("%+v is refused with %q, want %q", b, a.Limit, word)
		}
	}
}

func TestTheLevelRisesWhenEveryMemberCan(t *testing.T) {
	c := begunAt(t, 1)
	k := c.open(c.leader(), ttl)
	before := k.acquire("job").Token
	introduce(c, command.FeatureLevel)
	c.run(second)
	if a := c.raise(lead.RaiseLevel{Check: true}); a != (lead.LevelRaised{From: 1, To: command.FeatureLevel}) || c.leader().r.Status().Level != 1 {
		t.Errorf("a check answered %+v, level %d", a, c.leader().r.Status().Level)
	}
	for _, to := range []uint32{2, 0, 0} {
		want := lead.LevelRaised{From: c.leader().r.Status().Level, To: max(to, 2)}
		if to == 0 {
			want.To = command.FeatureLevel
		}
		if a := c.raise(lead.RaiseLevel{To: to}); a != want {
			t.Errorf("to %d answered %+v, want %+v", to, a, want)
		}
	}
	c.refusedRaise(lead.RaiseLevel{To: 1}, lead.LevelRefused, "cannot be lowered")
	c.until(5*second, "the level and the birth everywhere", func() bool {
		for _, h := range c.hosts {
			if h.r.Status().Level != command.FeatureLevel || !h.r.Birth().GrewFrom("configuration") || h.r.machine.Limits() != command.DefaultLimits() {
				return false
			}
		}
		return true
	})
	if after := k.acquire("other").Token; after <= before {
		t.Errorf("token %d after %d", after, before)
	}
	wrong := command.Secret{1}
	if a := c.call(k.host, lead.Request{Stream: c.newStream(), Session: k.id, Secret: &wrong, Body: lead.KeepAlive{Unary: true}}).(lead.Refused); a.Code != command.SessionUnknown {
		t.Errorf("a wrong secret: %+v", a)
	}
	if a, _ := k.attach(k.host, 0); a.(lead.Attached).Change == 0 && a.(lead.Attached).TTL == 0 {
		t.Errorf("attach answered %+v", a)
	}
	if late := c.open(c.leader(), ttl); late.acquire("third").Token <= before {
		t.Error("a session of after the rise gets no lock")
	}
	for _, open := range checkpointsIn[command.OpenSession](c) {
		if open.Hashed != (open.Secret != k.secret) {
			t.Errorf("logged as %+v", open)
		}
	}
}

func TestWhoCannotApplyTheLevelIsNamed(t *testing.T) {
	c := begunAt(t, 2)
	// Not met yet.
	c.refusedRaise(lead.RaiseLevel{To: 3}, lead.LevelBusy, "is down, so its feature level is unknown")
	introduce(c, 3)
	leader := c.leader()
	old := leader.id%3 + 1
	leader.inputs = append(leader.inputs, Met{ID: old, Level: 2})
	c.run(second)
	c.refusedRaise(lead.RaiseLevel{}, lead.LevelBusy, "(address unknown) supports level 2: upgrade it")
	c.refusedRaise(lead.RaiseLevel{To: 4}, lead.LevelBusy, "supports level 3")
	leader.inputs = append(leader.inputs, Met{ID: old, Level: 3})
	c.crash(c.host(old))
	c.run(2 * second)
	c.refusedRaise(lead.RaiseLevel{Check: true}, lead.LevelBusy, "is down")
	if level := c.leader().r.Status().Level; level != 2 {
		t.Errorf("level %d", level)
	}
	c.start(c.host(old))
	introduce(c, 3)
	c.run(2 * second)
	if a := c.raise(lead.RaiseLevel{}); a != (lead.LevelRaised{From: 2, To: 3}) {
		t.Errorf("answered %+v", a)
	}
}

// After the rise, the leader records what it is already timing, not only what begins then.
func TestTheLeasesOfBeforeAreWrittenDownAfterTheRise(t *testing.T) {
	c := begunAt(t, 1)
	silent := c.open(c.leader(), ttl)
	introduce(c, command.FeatureLevel)
	c.run(second)
	c.raise(lead.RaiseLevel{})
	c.until(lease(ttl), "the end of the lease in the log", func() bool {
		s, ok := c.leader().r.machine.Session(silent.id)
		return ok && s.Checkpointed
	})
}

// Builds that can level 2 alone would take the birth of a cluster that had none for another
// cluster's.
func TestABirthIsNotGivenLateWhileAMemberWouldNotKnowIt(t *testing.T) {
	c := begunAt(t, 1)
	introduce(c, command.BirthLevel)
	c.run(second)
	for _, to := range []uint32{0, command.BirthLevel} {
		c.refusedRaise(lead.RaiseLevel{To: to}, lead.LevelBusy, "supports level 2: upgrade it")
	}
	introduce(c, command.FeatureLevel)
	c.run(second)
	if a := c.raise(lead.RaiseLevel{To: command.BirthLevel}); a != (lead.LevelRaised{From: 1, To: command.BirthLevel}) {
		t.Errorf("answered %+v", a)
	}
}

// raised makes a cluster of level 2, with a session, rise to the newest level.
func raised(t *testing.T, before func(c *cluster)) (*cluster, *client) {
	c := begunAt(t, 2)
	k := c.open(c.leader(), 600_000)
	introduce(c, command.FeatureLevel)
	c.run(second)
	before(c)
	c.raise(lead.RaiseLevel{})
	return c, k
}

func (h *host) forgot() bool { return len(h.forget) > 0 && h.forget[len(h.forget)-1] == ForgetNow }

// quietCheck is how long the log goes without an entry.
const quietCheck = 5 * 60 * second

func TestAFollowerForgetsThoughTheClusterIsQuiet(t *testing.T) {
	c, k := raised(t, func(*cluster) {})
	c.until(10*second, "purge everywhere", func() bool { return !slices.ContainsFunc(c.hosts, func(h *host) bool { return !h.forgot() }) })
	k.call(lead.Close{}) // the leader would write down the lease of a silent session
	c.run(10 * second)
	follower := c.host(c.leader().id%3 + 1)
	c.crash(follower) // before its purge ended
	follower.forget = nil
	c.tune = func(cfg *Config) { cfg.ForgetDue = true }
	c.start(follower)
	leader := c.leader()
	c.until(3*quietCheck, "purge at a follower", func() bool { return follower.forgot() })
	if c.leader() != leader || leader.r.term != follower.r.term {
		t.Error("the leader changed: the test shows nothing")
	}
	from := leader.r.applied
	c.run(2 * quietCheck)
	if got := leader.r.applied - from; got > 3 {
		t.Errorf("a quiet cluster logged %d entries in %v", got, time.Duration(2*quietCheck))
	}
}

// A snapshot of a leader brings the level: what the disk has from before is noted before the
// snapshot is durable.
func TestALevelThatComesWithASnapshotIsNotedFirst(t *testing.T) {
	c, _ := raised(t, func(c *cluster) {
		c.lead(1)
		c.isolate(3)
	})
	behind := c.host(3)
	c.until(10*second, "snapshots of the others", func() bool { return c.host(1).forgot() && c.host(2).forgot() })
	for _, h := range c.hosts[:2] {
		if err := h.r.disk.Compact(h.r.snaps.index); err != nil { // no tail in memory
			t.Fatal(err)
		}
	}
	behind.disk.stuck = true
	c.heal()
	c.until(10*second, "snapshot on its way to the disk", func() bool { return behind.r.writes.installing() })
	if !slices.Equal(behind.forget, []Forget{ForgetLater}) || behind.r.Level() != 2 {
		t.Errorf("at level %d, before the snapshot is durable: %v", behind.r.Level(), behind.forget)
	}
	behind.disk.stuck = false
	c.until(10*second, "purge", func() bool { return behind.forgot() })
}

func TestTheRiseGivesUpTheCaptureInProgress(t *testing.T) {
	var before uint64
	c, _ := raised(t, func(c *cluster) {
		for _, h := range c.hosts {
			h.r.cfg.SnapshotPace = 200 * time.Millisecond
			h.inputs = append(h.inputs, SnapshotWanted{})
		}
		c.until(second, "captures", func() bool {
			return !slices.ContainsFunc(c.hosts, func(h *host) bool { return h.r.snaps.capture == nil })
		})
		before = c.leader().r.applied
	})
	for c.hosts[0].r.Level() < command.SecretLevel || c.hosts[1].r.Level() < command.SecretLevel || c.hosts[2].r.Level() < command.SecretLevel {
		c.tick()
	}
	for _, h := range c.hosts {
		if s := &h.r.snaps; s.meta != nil && s.meta.GetIndex() <= before {
			t.Errorf("after the rise replica %d still makes the snapshot at %d", h.id, s.meta.GetIndex())
		}
	}
	c.until(30*second, "snapshots of after the rise", func() bool {
		return !slices.ContainsFunc(c.hosts, func(h *host) bool { return h.disk.meta.GetIndex() <= before })
	})
}
