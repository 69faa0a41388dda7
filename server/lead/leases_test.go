package lead

import (
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// live reports whether the session has not ended.
func (k *client) live() bool {
	_, live := k.c.machine.Session(k.id)
	return live
}

func TestASilentSessionEndsAfterTTLAndGrace(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(ttl), c.open(60_000)
	a.acquire("job")
	b.acquire("job")
	from := c.now
	c.until(lease(ttl)+second, "expiry", func() bool { return !a.live() })
	if took := c.now - from; took < lease(ttl)-second {
		t.Errorf("expired after %v", time.Duration(took))
	}
	if told := b.changes(); len(told) != 1 || told[0].State != command.Granted {
		t.Errorf("the waiter was told %+v", told)
	}
	if e, ok := a.over(); !ok || e.Code != command.SessionExpired {
		t.Errorf("the holder was told %+v", e)
	}
}

func TestASessionThatRenewsLives(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	for range 10 {
		c.run(3 * second)
		if a, ok := c.answer(k.renew()).(Kept); !ok {
			t.Fatalf("answered %+v", a)
		}
	}
	if !k.live() {
		t.Error("expired")
	}
}

func TestWithoutARoundNothingIsRenewedAndNothingEnds(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	c.cutOff = true
	keep := k.renew()
	c.run(3 * lease(ttl))
	if got := c.take(func(r Reply) bool { return r.Tag == keep }); len(got) != 0 {
		t.Errorf("answered %+v", got)
	}
	if !k.live() {
		t.Error("expired by a leader that could not confirm a round")
	}
	if ran := c.Stats().Clock; ran > 2*time.Second {
		t.Errorf("the healthy clock ran to %v", ran)
	}
}

func TestARoundConfirmsOnlyWhatArrivedBeforeIt(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	c.run(40 * ms)
	read := c.read(1, ReadLock{Name: "job"})
	c.until(10*ms, "open round", func() bool { return c.Stats().Open == 1 })
	keep := k.renew()
	answered := func(tag uint64) bool {
		return len(c.take(func(r Reply) bool { return r.Tag == tag })) > 0
	}
	c.until(10*ms, "answer to the read", func() bool { return answered(read) })
	if answered(keep) {
		t.Error("the keepalive was answered by a round that is older")
	}
	c.answer(keep)
}

func TestNoLeaseEndsWhileAnOlderRequestWaitsInTheShell(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	c.run(lease(ttl) - second)
	c.backlog = c.now
	c.run(10 * second)
	if !k.live() {
		t.Fatal("expired while its keepalive may have been waiting")
	}
	c.backlog = 0
	c.until(second, "expiry", func() bool { return !k.live() })
}

func TestANewLeadershipStartsALeaseOver(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(2_000) // too short for its end to be recorded before the change
	c.run(second / 2)
	c.change()
	from := c.now
	c.until(lease(2_000)*5/4+second, "expiry", func() bool { return !k.live() })
	if took := c.now - from; took < lease(2_000) {
		t.Errorf("expired %v after the change", time.Duration(took))
	}
}

func TestANewLeadershipGoesOnWithARecordedEnd(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	from := c.now
	c.run(lease(ttl) - 2*second)
	c.change()
	c.until(3*second, "expiry", func() bool { return !k.live() })
	if took := c.now - from; took < lease(ttl)-second {
		t.Errorf("expired after %v", time.Duration(took))
	}
}

func TestALeaseWhoseEndIsRecordedIsRenewedInTheLogFirst(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(ttl)
	recorded := func() bool { s, _ := c.machine.Session(k.id); return s.Checkpointed }
	c.until(lease(ttl), "record", recorded)
	c.run(50 * ms)
	c.logStuck = true
	keep := k.renew()
	c.until(200*ms, "wait for the log", func() bool { return c.Stats().Renewing == 1 })
	if got := c.take(func(r Reply) bool { return r.Tag == keep }); len(got) != 0 {
		t.Errorf("answered %+v while the log says when the lease ends", got)
	}
	c.logStuck = false
	if a, ok := c.answer(keep).(Kept); !ok || recorded() {
		t.Errorf("answered %+v, still recorded: %v", a, recorded())
	}
}
