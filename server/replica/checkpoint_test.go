package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// firstLevel sets the feature level of the builds before checkpoints.
func firstLevel(cfg *Config) {
	cfg.Limits = command.DefaultLimits()
	cfg.Limits.FeatureLevel = 1
}

// change moves the leadership to the next host in turn: by a handover, or by a crash of the leader,
// which comes back.
func (c *cluster) change(crash bool) {
	c.t.Helper()
	h := c.leader()
	if !crash {
		c.lead(h.id%3 + 1)
		return
	}
	c.crash(h)
	c.leader()
	c.start(h)
}

// checkpointsIn collects the commands of this kind that any host applied, once each.
func checkpointsIn[T command.Command](c *cluster) (commands []T) {
	seen := map[uint64]bool{}
	for _, h := range c.hosts {
		for _, a := range h.applied {
			if a.Entry == nil || seen[a.Index] {
				continue
			}
			seen[a.Index] = true
			for _, cmd := range a.Entry.Commands {
				if cmd, ok := cmd.(T); ok {
					commands = append(commands, cmd)
				}
			}
		}
	}
	return commands
}

// lives returns how long a session lives after its last renewal if the leadership changes at this
// interval, not counting the time without a leader, and how many changes there were.
func (c *cluster) lives(k *client, live []*client, every lead.Time, crash bool, limit lead.Time) (served lead.Time, changes int) {
	c.t.Helper()
	for served < limit {
		if h := c.leader(); h.r.Status().Counts.Sessions == len(live) {
			return served, changes
		}
		c.beat(every, ttl/4, live, nil)
		served += every
		c.change(crash)
		changes++
	}
	c.t.Fatalf("after %v of service and %d changes of leaders session %v lives", time.Duration(served), changes, k.id)
	return served, changes
}

func TestADeadHolderIsFreedHoweverOftenTheLeaderChanges(t *testing.T) {
	for _, every := range []lead.Time{2 * second, 4 * second, 6 * second, 9 * second} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("every %v, crash %v", time.Duration(every), crash), func(t *testing.T) {
				reseed(7)
				c := newCluster(t, 3, nil)
				live, dead := c.open(c.leader(), ttl), c.open(c.leader(), ttl)
				dead.acquire("job")
				live.acquire("job")
				// Each change costs the successor what its predecessor did not get to log.
				most := 2 * lease(ttl)
				served, changes := c.lives(dead, []*client{live}, every, crash, 60*second)
				if served > most+lead.Time(changes)*500*ms {
					t.Errorf("it took %v of service and %d changes, want at most %v and 0.5 s per change", time.Duration(served), changes, time.Duration(most))
				}
				t.Logf("freed after %v of service and %d changes of leaders", time.Duration(served), changes)
				if n := c.expired(); n != 1 {
					t.Errorf("%d sessions expired, want the dead one alone", n)
				}
			})
		}
	}
}

func TestAtTheFirstFeatureLevelNothingIsWrittenDown(t *testing.T) {
	c := newCluster(t, 3, firstLevel)
	c.open(c.leader(), ttl)
	for range 8 {
		c.run(4 * second)
		c.change(false)
	}
	if n := c.expired(); n != 0 {
		t.Errorf("%d sessions expired", n)
	}
	if n := len(checkpointsIn[command.CheckpointLeases](c)) + len(checkpointsIn[command.RenewLeases](c)); n != 0 {
		t.Errorf("%d commands were logged that a build of level 1 cannot apply", n)
	}
}

func TestSessionsThatRenewLogNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	var clients []*client
	for range 200 {
		clients = append(clients, c.open(c.leader(), ttl))
	}
	c.beat(60*second, ttl, clients, nil)
	c.change(false)
	c.beat(20*second, ttl, clients, nil)
	if n := len(checkpointsIn[command.CheckpointLeases](c)) + len(checkpointsIn[command.RenewLeases](c)); n != 0 {
		t.Errorf("%d commands were logged for sessions that renew", n)
	}
}

func TestAMassDeathIsWrittenDownInBoundedPieces(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	const sessions = 10_000
	for i := range sessions {
		c.send(h, lead.Request{Stream: c.newStream(), Body: lead.Open{TTL: ttl, Random: [8]byte{byte(i), byte(i >> 8)}}})
		if i%4_000 == 0 {
			c.run(100 * ms) // the queue holds 8,192
		}
	}
	c.run(500 * ms)
	if n := h.r.Status().Counts.Sessions; n != sessions {
		t.Fatalf("%d sessions", n)
	}
	c.run(lease(ttl) - second - 200*ms)
	written, clocks := 0, 0
	for _, cp := range checkpointsIn[command.CheckpointLeases](c) {
		if len(cp.Sessions) > 4_096 {
			t.Errorf("one command has %d sessions", len(cp.Sessions))
		}
		written += len(cp.Sessions)
		clocks++
	}
	if written != sessions || clocks > 40 {
		t.Errorf("%d ends were written down in %d commands, want each of %d once, in at most 40", written, clocks, sessions)
	}
}

// writtenDown reports whether the end of the session's lease is in the state of the host.
func (k *client) writtenDown(h *host) bool {
	s, _ := h.r.machine.Session(k.id)
	return s.Checkpointed
}

// silent returns a cluster with a session whose lease end is recorded.
func silent(t *testing.T) (*cluster, *host, *client) {
	t.Helper()
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, ttl)
	k.acquire("job")
	c.run(lead.Time(ttl) * ms / 2)
	c.until(200*ms, "checkpoint", func() bool { return k.writtenDown(h) })
	return c, h, k
}

func TestALeaseThatIsWrittenDownIsRenewedInTheLogFirst(t *testing.T) {
	c, h, k := silent(t)
	c.run(50 * ms)
	for _, o := range c.hosts {
		o.disk.stuck = true // rounds continue, the log does not
	}
	tag := k.send(lead.KeepAlive{Number: 1})
	again := k.send(lead.KeepAlive{Number: 2})
	c.run(300 * ms)
	if got := h.take(func(r lead.Reply) bool { return r.Tag == tag }); len(got) != 0 {
		t.Fatalf("answered %+v while the log still says when the lease ends", got)
	}
	for _, o := range c.hosts {
		o.disk.stuck = false
	}
	for _, tag := range []uint64{tag, again} {
		if a, ok := c.answer(h, tag).(lead.Kept); !ok {
			t.Errorf("answered %+v", a)
		}
	}
	renewed := c.now
	if k.writtenDown(h) {
		t.Error("the end is still written down")
	}
	next := c.lead(2)
	c.until(lease(ttl)*5/4+second, "expiry", func() bool { return next.r.Status().Counts.Sessions == 0 })
	if took := c.now - renewed; took < lease(ttl) {
		t.Errorf("expired %v after the renewal", time.Duration(took))
	}
}

// TestALeaseWhoseRenewalNobodyHearsIsWrittenDownAgain: its keepalive waited for the log, and its
// stream is gone.
func TestALeaseWhoseRenewalNobodyHearsIsWrittenDownAgain(t *testing.T) {
	c, h, k := silent(t)
	for _, o := range c.hosts {
		o.disk.stuck = true
	}
	k.send(lead.KeepAlive{Number: 1})
	c.until(300*ms, "renewal under way", func() bool { return h.r.lead.Stats().Renewing > 0 })
	k.send(lead.Gone{})
	c.run(50 * ms)
	for _, o := range c.hosts {
		o.disk.stuck = false
	}
	c.until(second, "renewal", func() bool { return !k.writtenDown(h) })
	if n := h.r.lead.Stats().Renewing; n != 0 {
		t.Errorf("%d keepalives are held for nobody", n)
	}
	c.until(lead.Time(ttl)*ms/2+second, "checkpoint", func() bool { return k.writtenDown(h) })
}

func TestASuccessorTimesWhatIsLeftOfALease(t *testing.T) {
	c, _, k := silent(t)
	c.run(2 * second)
	next := c.lead(2)
	c.until(lease(ttl), "expiry", func() bool { return next.r.Status().Counts.Sessions == 0 })
	if lived := c.expiredAt(k.id); lived < lease(ttl)-10*ms {
		t.Errorf("expired %v after the cluster began", time.Duration(lived))
	}
	if c.now > lease(ttl)+2*second {
		t.Errorf("expired at %v", time.Duration(c.now))
	}
}

// TestAPauseOfTheSuccessorShortensNothing: the lease clock is a healthy clock.
func TestAPauseOfTheSuccessorShortensNothing(t *testing.T) {
	c, _, k := silent(t)
	c.run(2 * second)
	next := c.lead(2)
	for _, h := range c.hosts {
		h.paused = true
	}
	c.run(60 * second)
	for _, h := range c.hosts {
		h.paused = false
	}
	c.run(second)
	k.host, k.stream = next, c.newStream()
	k.renew()
	c.run(20 * second)
	if n := c.expired(); n != 1 { // long after the one renewal
		t.Errorf("%d sessions expired", n)
	}
	if lived := c.expiredAt(k.id); lived < 60*second+lease(ttl) {
		t.Errorf("the session that came back expired at %v", time.Duration(lived))
	}
}

func TestARevokedLockIsFreedHoweverOftenTheLeaderChanges(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	dead, live := c.open(h, 60_000), c.open(h, 60_000)
	dead.acquire("job")
	live.acquire("job")
	c.call(h, lead.Request{Stream: c.newStream(), Body: lead.Revoke{Name: "job", Command: command.Revoke{By: "ops", Reason: "test"}}})
	from := c.now
	holder := func() command.SessionID { return c.leader().r.machine.Lock("job", 1, 0).Holders[0].Claim.Session }
	changes := lead.Time(0)
	for holder() == dead.id && c.now < from+200*second {
		c.beat(4*second, 40_000, []*client{live, dead}, nil)
		c.change(changes%2 == 0)
		changes++
	}
	if took := c.now - from; took < lease(60_000) || took > lease(60_000)+changes*2*second {
		t.Errorf("freed %v after the revocation and %d changes", time.Duration(took), changes)
	}
}
