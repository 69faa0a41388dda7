package replica

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

const restoreWait = 20_000 // milliseconds

// renewed makes every replica start from the same renewed state, as in a restored cluster. The
// machine has issued tokens up to next, and its backup was taken at stamp.
func renewed(next command.Token, stamp command.WallMillis, wait command.Millis) func(*Config) {
	return func(cfg *Config) {
		m := machine.New()
		m.Apply(8, 1, &command.Entry{Commands: []command.Command{command.SetTokenFloor{Floor: next}}})
		m.Renew(stamp, wait)
		cfg.Machine = m
		cfg.Snapshot = &raftpb.SnapshotMetadata{Index: new(m.Index()), Term: new(uint64(1)), ConfState: cfg.Snapshot.GetConfState()}
	}
}

func TestARestoredClusterGrantsAfterTheWaitWithTokensAboveTheFloor(t *testing.T) {
	restored := renewed(500, wall0, restoreWait)
	c := newCluster(t, 3, func(cfg *Config) {
		restored(cfg)
		cfg.Limits = command.DefaultLimits()
		cfg.Limits.FeatureLevel = 1 // at level 2 a new leader waits for what is left
	})
	h := c.leader()
	c.until(5*second, "a floor", func() bool { return !h.r.Recovery().FloorDue })
	floor := tokenFloor(wall0)
	if next := h.r.Status().Counts.NextToken; next < floor {
		t.Errorf("next token %d below the floor %d", next, floor)
	}
	refused := func() bool {
		k := c.open(h, ttl)
		r, ok := k.call(k.acquireBody(spec("job"))).(lead.Refused)
		return ok && r.Code == command.NotReady
	}
	if !refused() {
		t.Error("granted in the wait")
	}
	// A new leader waits the full time.
	c.run(lead.Time(restoreWait) * ms / 2)
	h = c.lead(1 + h.id%3)
	began := c.now
	c.run(lead.Time(restoreWait) * ms * 3 / 4)
	if !refused() {
		t.Error("a new leader did not wait in full")
	}
	c.until(second*restoreWait/1000, "the end of the wait", func() bool { return !h.r.Recovery().Pending() })
	if waited := c.now - began; waited < lead.Time(restoreWait)*ms-second {
		t.Errorf("granted after %v", waited)
	}
	if got := c.open(h, ttl).acquire("job"); got.Token < floor {
		t.Errorf("token %d below the floor %d", got.Token, floor)
	}
	c.run(second)
	for _, o := range c.hosts {
		if o.r.Recovery().Pending() || o.r.machine.Hash() != h.r.machine.Hash() {
			t.Errorf("replica %d differs: %+v", o.id, o.r.Recovery())
		}
	}
}

// TestTheWaitAfterARestoreEndsHoweverOftenTheLeaderChanges: at feature level 2 a new leader waits
// only for what is left.
func TestTheWaitAfterARestoreEndsHoweverOftenTheLeaderChanges(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		m := machine.New()
		limits := command.SetLimits{Limits: command.DefaultLimits()}
		m.Apply(8, 1, &command.Entry{Commands: []command.Command{limits, command.SetTokenFloor{Floor: 500}}})
		m.Renew(wall0, restoreWait)
		cfg.Machine = m
		cfg.Snapshot = &raftpb.SnapshotMetadata{Index: new(m.Index()), Term: new(uint64(1)), ConfState: cfg.Snapshot.GetConfState()}
	})
	began := c.now
	for c.leader().r.Recovery().Pending() && c.now < began+60*second {
		c.run(4 * second)
		if c.leader().r.Recovery().Pending() {
			c.change(false)
		}
	}
	if took := c.now - began; took < lead.Time(restoreWait)*ms || took > lead.Time(restoreWait)*ms+10*second {
		t.Errorf("the wait of 20 s took %v", time.Duration(took))
	}
}

func TestARestoredClusterWithoutAWaitGrantsAtOnce(t *testing.T) {
	c := newCluster(t, 3, renewed(500, wall0, 0))
	if got := c.open(c.leader(), ttl).acquire("job"); got.Token < tokenFloor(wall0) {
		t.Errorf("token %d", got.Token)
	}
}

func TestARestoredClusterNeedsAClockBehindItsBackup(t *testing.T) {
	for name, tune := range map[string]func(*Config){
		"before the stamp":  renewed(500, wall0+60_000, 0),
		"before the tokens": renewed(tokenFloor(wall0+60_000), 0, 0),
	} {
		c := newCluster(t, 1, tune)
		h := c.host(1)
		c.until(5*second, name, func() bool { return h.r.Status().NoFloor != "" })
		c.wall = wall0 + 120_000
		c.until(5*second, "a floor", func() bool { return !h.r.Recovery().Pending() })
		if got := c.open(h, ttl).acquire("job"); got.Token < tokenFloor(wall0+60_000) {
			t.Errorf("%s: token %d", name, got.Token)
		}
	}
}

// TestNothingIsLoggedForClaimsThatCannotBeGrantedYet: a thousand waiting clients cause no load on
// the log.
func TestNothingIsLoggedForClaimsThatCannotBeGrantedYet(t *testing.T) {
	for name, c := range map[string]struct {
		tune  func(*Config)
		knows bool // how long it lasts
	}{
		"after a restore":         {renewed(500, wall0, restoreWait), true},
		"with a wrong clock":      {func(cfg *Config) { cfg.Built = wall0 + 500_000 }, false},
		"a clock after a restore": {renewed(500, wall0+600_000, restoreWait), false},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, 3, c.tune)
			var h *host
			cl.until(5*second, "a leader", func() bool {
				i := slices.IndexFunc(cl.hosts, func(o *host) bool { return o.r.Status().Serving })
				if i >= 0 {
					h = cl.hosts[i]
				}
				return i >= 0
			})
			k := cl.open(h, ttl)
			cl.run(second)
			for range 50 {
				// So that something of the session is in flight.
				tag := k.send(lead.Cancel{Claim: command.Cancel{Seq: k.seq + 500}})
				no, ok := k.call(k.acquireBody(spec("job"))).(lead.Refused)
				if !ok || no.Code != command.NotReady || no.Limit == "" || (no.RetryAfter > 0) != c.knows {
					t.Fatalf("answered %+v", no)
				}
				cl.answer(h, tag)
			}
			if n := acquiresIn(h.applied); n != 0 {
				t.Errorf("%d claims were logged while nothing could be granted", n)
			}
			st := h.r.Status()
			if st.GrantsHeld == "" || (st.GrantsHeldFor > 0) != c.knows || st.GrantsHeldFor > restoreWait*time.Millisecond+time.Second {
				t.Errorf("status says %q for %v", st.GrantsHeld, st.GrantsHeldFor)
			}
		})
	}
}

func TestTheRestOfTheWaitIsTold(t *testing.T) {
	c := newCluster(t, 3, renewed(500, wall0, restoreWait))
	h := c.leader()
	k := c.open(h, ttl)
	no := k.call(k.acquireBody(spec("job"))).(lead.Refused)
	told := c.now + lead.Time(no.RetryAfter)
	for _, o := range c.hosts {
		if st := o.r.Status(); o != h && st.GrantsHeldFor < restoreWait*time.Millisecond {
			t.Errorf("follower %d says %q for %v, want the whole wait", o.id, st.GrantsHeld, st.GrantsHeldFor)
		}
	}
	c.until(second*restoreWait/1000+5*second, "the end of the wait", func() bool { return h.r.Status().GrantsHeld == "" })
	if off := time.Duration(c.now - told); off < -100*time.Millisecond || off > 2*time.Second {
		t.Errorf("granted %v after the time that was told", off)
	}
}

func TestTheEndOfTheTokensIsFinal(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.TokenFloor = command.MaxToken })
	k := c.open(c.leader(), ttl)
	if got := k.acquire("last"); got.Token != command.MaxToken {
		t.Fatalf("token %d", got.Token)
	}
	if no, ok := k.call(k.acquireBody(spec("one too many"))).(lead.Refused); !ok || no.Code != command.Exhausted || no.RetryAfter != 0 {
		t.Errorf("answered %+v", no)
	}
	if st := k.host.r.Status(); st.GrantsHeld == "" {
		t.Error("status does not say so")
	}
}

func acquiresIn(applied []Applied) (n int) {
	for _, a := range applied {
		if a.Entry == nil {
			continue
		}
		for _, c := range a.Entry.Commands {
			if _, ok := c.(command.Acquire); ok {
				n++
			}
		}
	}
	return n
}
