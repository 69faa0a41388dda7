package lead

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

func (c *bed) read(connection uint64, b Body) uint64 {
	return c.send(Request{Stream: c.newStream(), From: Origin{Connection: connection}, Body: b})
}

// answeredAt runs until all are answered and returns when the last one was.
func (c *bed) answeredAt(tags ...uint64) Time {
	c.t.Helper()
	for _, tag := range tags {
		c.answer(tag)
	}
	return c.now
}

func TestAConnectionWithManyReadsDoesNotKeepOthersWaiting(t *testing.T) {
	c := newBed(t, nil)
	c.open(ttl).acquire("job")
	history := ReadHistory{Name: "nobody", Limit: 60} // 124 units each
	from := c.now
	c.answeredAt(c.read(2, history))
	alone := c.now - from

	var many []uint64
	for range 400 {
		many = append(many, c.read(1, history))
	}
	from = c.now
	c.answeredAt(c.read(2, history))
	beside := c.now - from
	if beside > 3*alone {
		t.Errorf("a read took %d ms beside another connection's 400, and %d ms alone", beside/ms, alone/ms)
	}
	if all := c.answeredAt(many...) - from; all < 20*ms {
		t.Errorf("all 400 took %d ms, want 2 ms of reads in each turn: the test proves nothing", all/ms)
	}
}

func TestReadsOfATurnAreBoundedByWhatTheyTake(t *testing.T) {
	var clock time.Duration
	c := newBed(t, func(cfg *Config, limits *command.Limits) {
		// Each read takes that long.
		cfg.Stopwatch = func() time.Duration { clock += 500 * time.Microsecond; return clock }
	})
	k := c.open(ttl)
	for range 50 {
		c.read(1, ReadLock{Name: "job"})
	}
	most, all := 0, 0
	for range 50 {
		c.tick()
		n := len(c.take(func(r Reply) bool { _, is := r.Answer.(LockRead); return is }))
		most, all = max(most, n), all+n
	}
	if most != 4 || all != 50 {
		t.Errorf("%d of %d reads in one turn, want 4 of 50: 2 ms", most, all)
	}
	k.renew()
}

func TestADeposedLeaderRefusesReadsThatWaitTheirTurn(t *testing.T) {
	c := newBed(t, func(cfg *Config, limits *command.Limits) {
		cfg.Stopwatch = func() func() time.Duration {
			clock := time.Duration(0)
			return func() time.Duration { clock += time.Second; return clock } // one read a turn
		}()
	})
	var tags []uint64
	for range 50 {
		tags = append(tags, c.read(1, ReadLock{Name: "job"}))
	}
	c.until(second, "a confirmed round", func() bool { return !c.Lead.rounds.reads.empty() })
	if s := c.Stats(); s.Held == 0 {
		t.Error("reads that wait their turn are not counted as held")
	}
	c.Depose()
	out := c.Replies()
	refused := map[uint64]bool{}
	for _, r := range out {
		if refusal(r.Answer) == NotLeader {
			refused[r.Tag] = true
		}
	}
	for _, r := range c.take(func(r Reply) bool { return r.Tag != 0 }) {
		refused[r.Tag] = true // answered before
	}
	for _, tag := range tags {
		if !refused[tag] {
			t.Errorf("read %d was forgotten", tag)
		}
	}
}

func (c *bed) openFrom(address string) (Opened, Answer) {
	c.t.Helper()
	c.tag++
	open := Open{TTL: ttl, Random: [8]byte{byte(c.tag), byte(c.tag >> 8)}, ClientNumbered: true}
	a := c.call(Request{Stream: c.newStream(), From: Origin{Address: address}, Body: open})
	opened, _ := a.(Opened)
	return opened, a
}

func TestAnAddressHasABoundedNumberOfSessions(t *testing.T) {
	c := newBed(t, func(cfg *Config, limits *command.Limits) { cfg.SessionsPerAddress = 3 })
	var mine []Opened
	for range 3 {
		o, a := c.openFrom("10.0.0.1")
		if o.TTL == 0 {
			t.Fatalf("answered %+v", a)
		}
		mine = append(mine, o)
	}
	full := func(address string) bool {
		t.Helper()
		_, a := c.openFrom(address)
		r, refused := a.(Refused)
		if refused && (r.Code != command.QuotaExceeded || !strings.Contains(r.Limit, "10.0.0.1: at most 3")) {
			t.Errorf("refused with %+v", r)
		}
		return refused
	}
	if !full("10.0.0.1") {
		t.Error("a fourth session was opened")
	}
	if full("10.0.0.2") {
		t.Error("another address was refused")
	}
	if full("") {
		t.Error("a client whose address is not known was refused")
	}
	c.call(Request{Stream: c.newStream(), Session: mine[0].Session, Secret: &mine[0].Secret, Body: Close{}})
	if full("10.0.0.1") {
		t.Error("the place of a session that was closed is not free")
	}
	if !full("10.0.0.1") {
		t.Error("a place was given twice")
	}

	// The next leader counts those that it hears from.
	c.change()
	for _, o := range mine[1:] {
		c.call(Request{Stream: c.newStream(), Session: o.Session, Secret: &o.Secret, From: Origin{Address: "10.0.0.1"}, Body: KeepAlive{Unary: true}})
	}
	if full("10.0.0.1") {
		t.Error("two sessions were heard of, and a third is refused")
	}
	if !full("10.0.0.1") {
		t.Error("sessions that were renewed are not counted by the next leader")
	}
	c.run(2 * Time(ttl) * ms)
	if n := len(c.origins.of) + len(c.origins.count); n != 0 {
		t.Errorf("%d entries are left of sessions that have ended: %+v", n, c.origins)
	}
}

func TestOpensAboveTheClustersLimitAreNotLogged(t *testing.T) {
	c := newBed(t, func(cfg *Config, limits *command.Limits) {
		limits.Sessions = 2
	})
	for range 2 {
		if o, a := c.openFrom("10.0.0.1"); o.TTL == 0 {
			t.Fatalf("answered %+v", a)
		}
	}
	c.run(100 * ms)
	before := c.queue.batches
	for range 10 {
		if _, a := c.openFrom("10.0.0.1"); a.(Refused).Code != command.QuotaExceeded {
			t.Fatalf("answered %+v", a)
		}
	}
	if n := c.queue.batches - before; n > 2 {
		t.Errorf("%d entries for sessions that were refused", n)
	}
	if n := len(c.origins.of); n != 2 || c.origins.count["10.0.0.1"] != 2 {
		t.Errorf("%d sessions are counted: %+v", n, c.origins.count)
	}
}
