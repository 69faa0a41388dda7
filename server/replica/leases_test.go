package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

// grace is the default of Config.Grace.
const grace = 500 * ms

// lease returns the longest time that a session lives after its last renewal, except for the bound
// on the expiry itself.
func lease(ttl command.Millis) lead.Time { return lead.Time(ttl)*ms + grace }

// beat advances the time while clients renew every TTL/3 at whichever host serves. lose drops a
// renewal.
func (c *cluster) beat(d lead.Time, ttl command.Millis, clients []*client, lose func(n int) bool) {
	c.t.Helper()
	n := 0
	for end := c.now + d; c.now < end; {
		for _, k := range clients {
			n++
			if lose == nil || !lose(n) {
				k.renew()
			}
		}
		c.run(lead.Time(ttl) * ms / 3)
	}
}

// renew sends a keepalive to the serving host, attaching there first if it is a new one.
func (k *client) renew() {
	for _, h := range k.c.hosts {
		if h.r == nil || h.paused || !h.r.Status().Serving {
			continue
		}
		if h != k.host || h.r.term != k.term {
			k.host, k.stream, k.term = h, k.c.newStream(), h.r.term
			k.number++
			k.send(lead.Attach{Secret: k.secret, Number: k.number})
		}
		k.send(lead.KeepAlive{Number: uint64(k.c.now)})
	}
}

// expired counts the sessions that ended in the applied history of any host.
func (c *cluster) expired() (n int) {
	for _, h := range c.hosts {
		ended := 0
		for _, a := range h.applied {
			for _, change := range a.Output.Changes {
				if change.Ended == command.SessionExpired {
					ended++
				}
			}
		}
		n = max(n, ended)
	}
	return n
}

func TestADeadClientsLockPassesOnAfterTTLAndGrace(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	dead, waiter := c.open(h, ttl), c.open(h, ttl)
	dead.acquire("job")
	waiter.acquire("job")
	c.run(second)
	if a := dead.call(lead.KeepAlive{Number: 1}); a.(lead.Kept).Number != 1 {
		t.Fatalf("keepalive answered %+v", a)
	}
	last := c.now
	var granted lead.Time
	for granted == 0 && c.now < last+30*second {
		c.beat(ttlThird, ttl, []*client{waiter}, nil)
		if told := waiter.changes(); len(told) > 0 {
			granted = c.now
		}
	}
	if took := granted - last; took < lease(ttl)-ttlThird || took > lease(ttl)+second+ttlThird {
		t.Errorf("granted %v after the last renewal", time.Duration(took))
	}
	applied := c.expiredAt(dead.id)
	if took := applied - last; took < lease(ttl)-10*ms || took > lease(ttl)+second {
		t.Errorf("expired %v after the last renewal, want %v to %v", time.Duration(took), time.Duration(lease(ttl)), time.Duration(lease(ttl)+second))
	}
	if e, ok := dead.over(); !ok || e.Code != command.SessionExpired {
		t.Errorf("the dead session's stream was told %+v, want its end", e)
	}
	if a := dead.call(lead.KeepAlive{Number: 2}).(lead.Refused); a.Code != command.SessionExpired {
		t.Errorf("a late keepalive was answered %+v", a)
	}
}

const ttlThird = lead.Time(10*time.Second) / 3

// expiredAt returns the wall time of the expiry in the history, on the cluster's clock.
func (c *cluster) expiredAt(id command.SessionID) lead.Time {
	for _, h := range c.hosts {
		for _, e := range h.events {
			if e.Kind == command.EventExpired && e.Claim.Session == id {
				return c.now - lead.Time(c.wall-e.Wall)*ms
			}
		}
	}
	c.t.Fatalf("session %v did not expire", id)
	return 0
}

func TestASessionThatDueIsAnsweredOnlyWithItsEnd(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	k := c.open(h, ttl)
	// The leader can still confirm rounds, but its log does not move: the Expire stays in flight.
	c.run(lease(ttl) - 100*ms)
	for _, o := range c.hosts {
		o.disk.stuck = true
	}
	c.until(350*ms, "expiring session", func() bool { return h.r.Status().Expiring == 1 })
	tag := k.send(lead.KeepAlive{Number: 9})
	c.run(100 * ms)
	if got := h.take(func(r lead.Reply) bool { return r.Tag == tag }); len(got) != 0 {
		t.Fatalf("a session whose end is proposed was answered %+v", got)
	}
	for _, o := range c.hosts {
		o.disk.stuck = false
	}
	if a := c.answer(h, tag).(lead.Refused); a.Code != command.SessionExpired {
		t.Errorf("answered %+v, want its end", a)
	}
}

func TestRestartsOfTheLeaderLoseNoSession(t *testing.T) { // B1
	c := newCluster(t, 3, nil)
	var clients []*client
	for range 50 {
		clients = append(clients, c.open(c.leader(), 15_000))
	}
	for range 10 {
		h := c.leader()
		c.crash(h)
		c.beat(2*second, 15_000/5, clients, nil)
		c.start(h)
		c.beat(18*second, 15_000, clients, nil)
	}
	if n := c.expired(); n != 0 {
		t.Errorf("%d sessions were lost", n)
	}
	if n := c.leader().r.Status().Counts.Sessions; n != 50 {
		t.Errorf("%d sessions are left", n)
	}
}

func TestALostRenewalLosesNothingAndSilenceLosesOnce(t *testing.T) { // B2
	c := newCluster(t, 3, nil)
	k := c.open(c.leader(), 15_000)
	c.beat(120*second, 15_000, []*client{k}, func(n int) bool { return n%3 == 0 })
	if n := c.expired(); n != 0 {
		t.Fatalf("%d sessions were lost", n)
	}
	c.run(lease(15_000) + second)
	if n := c.expired(); n != 1 {
		t.Errorf("%d sessions expired, want 1", n)
	}
}

func TestADeposedLeaderWithAStuckDiskExpiresNobody(t *testing.T) { // F3
	c := newCluster(t, 3, func(cfg *Config) { cfg.StallExit = time.Hour })
	old := c.lead(1)
	var clients []*client
	for range 20 {
		clients = append(clients, c.open(old, ttl))
	}
	old.disk.stuck = true
	clients[0].send(clients[0].acquireBody(spec("job"))) // something to write
	c.beat(2*lead.Time(ttl)*ms, ttl/3, clients, nil)
	if s := old.r.Status(); s.Role == Leader {
		t.Errorf("the replica with the stuck disk still leads: %+v", s)
	}
	old.disk.stuck = false
	c.beat(2*lead.Time(ttl)*ms, ttl, clients, nil)
	if n := c.expired(); n != 0 {
		t.Errorf("%d sessions expired", n)
	}
}

func TestALeaderThatIsCutOffExpiresNobodyWhenItReturns(t *testing.T) {
	c := newCluster(t, 3, nil)
	old := c.lead(1)
	live, quiet := c.open(old, ttl), c.open(old, ttl)
	live.acquire("job")
	c.run(lease(ttl) - 300*ms)
	live.call(lead.KeepAlive{})
	c.isolate(1)
	// Its clock continues for a short while and ends the quiet session, in a log that goes nowhere.
	c.until(second, "expiring session", func() bool { return old.r.Status().Expiring == 1 })
	next := c.leader(1)
	clients := []*client{live, quiet}
	c.beat(5*second, ttl/3, clients, nil)
	c.heal()
	c.beat(20*second, ttl, clients, nil)
	if n := c.expired(); n != 0 {
		t.Errorf("%d sessions expired: the end that a deposed leader proposed was applied", n)
	}
	if old.r.machine.Hash() != next.r.machine.Hash() {
		t.Error("the replicas differ")
	}
}

func TestAPausedClusterExpiresNobodyWhoseRenewalsWait(t *testing.T) {
	for _, pause := range []lead.Time{second, 9 * second, 60 * second} {
		t.Run(time.Duration(pause).String(), func(t *testing.T) {
			c := newCluster(t, 3, nil)
			var clients []*client
			for range 100 {
				clients = append(clients, c.open(c.leader(), ttl))
			}
			c.beat(5*second, ttl, clients, nil)
			// The whole machine sleeps: clients keep sending and nobody reads.
			for _, h := range c.hosts {
				h.paused = true
			}
			c.run(pause)
			for _, h := range c.hosts {
				h.paused = false
			}
			c.beat(15*second, ttl, clients, nil)
			if n := c.expired(); n != 0 {
				t.Errorf("%d sessions expired", n)
			}
			c.run(lease(ttl)*5/4 + second)
			if n := c.expired(); n != 100 {
				t.Errorf("%d of 100 silent sessions expired", n)
			}
		})
	}
}

func TestNothingExpiresBeyondTheOldestRequestThatTheShellKeeps(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	k := c.open(h, ttl)
	c.run(lease(ttl) - second)
	kept := c.now
	for c.now < kept+5*second {
		h.inputs = append(h.inputs, Backlog{Oldest: kept})
		c.tick()
	}
	if n := c.expired(); n != 0 {
		t.Fatal("a session expired while its keepalive may have been waiting in the shell")
	}
	q := k.request(lead.KeepAlive{Number: 3})
	q.Tag, q.Received = 1_000, kept
	h.inputs = append(h.inputs, Asked{q})
	if a, ok := c.answer(h, q.Tag).(lead.Kept); !ok || a.Number != 3 {
		t.Errorf("the keepalive was answered %+v", a)
	}
}

func TestANewLeaderGivesEveryLeaseItsFullTime(t *testing.T) {
	c := newCluster(t, 3, nil)
	k := c.open(c.lead(1), ttl)
	k.acquire("job")
	c.run(2 * second)
	h := c.lead(2)
	from := c.now
	c.until(lease(ttl)*5/4+2*second, "expiry", func() bool { return h.r.Status().Counts.Sessions == 0 })
	if took := c.now - from; took < lease(ttl)-50*ms || took > lease(ttl)+lead.Time(ttl)*ms/4+second {
		t.Errorf("expired %v after the change of leaders", time.Duration(took))
	}
}

func TestManyExpiriesAreChunked(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	const sessions, claims = 4, 100 // of 16 names: 1,600 names a session
	for i := range sessions {
		k := c.open(h, ttl)
		for j := range claims {
			var names []string
			for n := range command.MaxNames {
				names = append(names, fmt.Sprintf("team/%d/%d/%d", i, j, n))
			}
			k.send(k.acquireBody(command.Spec{Names: names}))
		}
	}
	c.run(100 * ms)
	if n := h.r.Status().Counts.Holders; n != sessions*claims {
		t.Fatalf("%d claims are held", n)
	}
	h.applied = nil
	c.run(lease(ttl) + 2*second)
	entries := 0
	for _, a := range h.applied {
		ended := 0
		for _, e := range a.Output.Events {
			if e.Kind == command.EventExpired {
				ended++
			}
		}
		if ended > 4_096 {
			t.Errorf("entry %d ends %d names", a.Index, ended)
		}
		if ended > 0 {
			entries++
		}
	}
	if n := c.expired(); n != sessions || entries != 2 {
		t.Errorf("%d sessions expired in %d entries, want %d in 2", n, entries, sessions)
	}
}

func TestLeasesAfterAChangeOfLeadersEndSpreadOut(t *testing.T) {
	c := newCluster(t, 3, nil)
	for range 50 {
		c.open(c.lead(1), ttl)
	}
	h := c.lead(2)
	var first, last lead.Time
	c.until(lease(ttl)*5/4+2*second, "expiry of all", func() bool {
		left := h.r.Status().Counts.Sessions
		if left < 50 && first == 0 {
			first = c.now
		}
		last = c.now
		return left == 0
	})
	if spread := last - first; spread < second || spread > lead.Time(ttl)*ms/4 {
		t.Errorf("all ended within %v, want them spread over up to TTL/4", time.Duration(spread))
	}
}

func TestTheClockOfALeaderWithoutAQuorumStops(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.RoundIdle = 50 * time.Millisecond })
	h := c.lead(1)
	c.open(h, ttl)
	c.run(second)
	before := h.r.lead.Stats().Clock
	c.isolate(1)
	c.run(500 * ms)
	if !h.r.Status().Serving {
		t.Fatal("the leader gave up before the test looked")
	}
	if ran := h.r.lead.Stats().Clock - before; ran > 200*time.Millisecond {
		t.Errorf("it ran %v without a confirmed round", ran)
	}
}

func TestAWaitEndsInItsTimeAndNeverTakesBackAGrant(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	a, b := c.open(h, 60_000), c.open(h, 60_000)
	first := a.acquire("job")
	wait := b.acquireBody(command.Spec{Names: []string{"job"}, HasWait: true, Wait: 2_000})
	b.call(wait)
	from := c.now
	c.until(4*second, "end of the wait", func() bool { return h.r.machine.Lock("job", 100, 1).Waiting == 0 })
	if took := c.now - from; took < 2*second-10*ms || took > 3*second {
		t.Errorf("the wait of 2 s ended after %v", time.Duration(took))
	}
	if told := b.changes(); len(told) != 1 || told[0].State != command.WaitEnded {
		t.Errorf("the waiter was told %+v", told)
	}
	b.call(b.acquireBody(command.Spec{Names: []string{"job"}, HasWait: true, Wait: 2_000}))
	a.call(lead.Release{Claim: command.Release{Seq: first.Seq, Token: first.Token}})
	c.run(5 * second)
	if got := h.r.machine.Lock("job", 100, 0).Holders; len(got) != 1 || got[0].Claim.Session != b.id {
		t.Errorf("held by %+v, want the waiter, whose wait has run out since", got)
	}
}

func TestARevokedLockStaysClosedForTTLAndGrace(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	a, b := c.open(h, ttl), c.open(h, ttl)
	a.acquire("job")
	b.acquire("job")
	admin := c.newStream()
	got := c.call(h, lead.Request{Stream: admin, Body: lead.Revoke{Name: "job", Command: command.Revoke{By: "ops", Reason: "test"}}})
	if got != (lead.RevokedClaims{Count: 1}) {
		t.Fatalf("revoke answered %+v", got)
	}
	if told := a.changes(); len(told) != 1 || told[0].State != command.Revoked || told[0].By != "ops" {
		t.Fatalf("the holder was told %+v", told)
	}
	from := c.now
	var granted lead.Time
	for granted == 0 && c.now < from+30*second {
		c.beat(second, ttl, []*client{a, b}, nil)
		if len(b.changes()) > 0 {
			granted = c.now
		}
	}
	for _, e := range h.events {
		if e.Kind == command.EventGranted && e.Claim.Session == b.id {
			granted = c.now - lead.Time(c.wall-e.Wall)*ms
		}
	}
	if took := granted - from; took < lease(ttl)-10*ms || took > lease(ttl)+second {
		t.Errorf("granted %v after the revocation", time.Duration(took))
	}
}
