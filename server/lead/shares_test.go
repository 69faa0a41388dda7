package lead

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

// acquireFrom opens a session of a client at an address and takes locks with it until it is
// refused, at most n.
func (c *bed) acquireFrom(address string, n int) (o Opened, taken int, last Answer) {
	c.t.Helper()
	o, last = c.openFrom(address)
	for taken < n {
		c.tag++
		seq := uint64(taken + 1)
		name := fmt.Sprintf("%s/%v/%d", address, o.Session, seq)
		claim := command.Acquire{Session: o.Session, Seq: seq, Floor: 1, Spec: spec(name)}
		last = c.call(Request{Stream: c.newStream(), Session: o.Session, Secret: &o.Secret, From: Origin{Address: address}, Body: Acquire{Claim: claim}})
		if _, ok := last.(Claimed); !ok {
			return o, taken, last
		}
		taken++
	}
	return o, taken, last
}

func TestAnAddressHasHalfOfTheClaims(t *testing.T) {
	c := newBed(t, func(cfg *Config, limits *command.Limits) {
		limits.ClaimsTotal = 20
	})
	o, taken, last := c.acquireFrom("10.0.0.1", 8)
	if taken != 8 {
		t.Fatalf("%d taken, then %+v", taken, last)
	}
	_, taken, last = c.acquireFrom("10.0.0.1", 8) // with another session
	if taken != 2 {
		t.Errorf("%d taken with the second session, want 2", taken)
	}
	r, _ := last.(Refused)
	if r.Code != command.QuotaExceeded || !strings.Contains(r.Limit, "claims of clients at 10.0.0.1: at most 10") {
		t.Errorf("refused with %+v", last)
	}

	// A claim that is known is answered, also when the address is full.
	again := command.Acquire{Session: o.Session, Seq: 8, Floor: 1, Spec: spec(fmt.Sprintf("10.0.0.1/%v/8", o.Session))}
	a := c.call(Request{Stream: c.newStream(), Session: o.Session, Secret: &o.Secret, Body: Acquire{Claim: again}})
	if _, ok := a.(Claimed); !ok {
		t.Errorf("a repeated claim was answered with %+v", a)
	}

	if _, taken, last = c.acquireFrom("10.0.0.2", 8); taken != 8 {
		t.Errorf("another address has %d of 8: %+v", taken, last)
	}
	c.call(Request{Stream: c.newStream(), Session: o.Session, Secret: &o.Secret, Body: Close{}})
	c.run(second) // until the shares are counted again
	if _, taken, last = c.acquireFrom("10.0.0.1", 2); taken != 2 {
		t.Errorf("after its session closed the address has %d of 2: %+v", taken, last)
	}
}

func TestAnAddressHasHalfOfTheBytes(t *testing.T) {
	c := newBed(t, func(cfg *Config, limits *command.Limits) {
		limits.StateBytes = 64 << 10
	})
	_, taken, last := c.acquireFrom("10.0.0.1", 1000)
	r, _ := last.(Refused)
	if !strings.Contains(r.Limit, "bytes of sessions and claims of clients at 10.0.0.1: at most 32768") {
		t.Errorf("after %d: %+v", taken, last)
	}
	if _, others, last := c.acquireFrom("10.0.0.2", taken/2); others != taken/2 {
		t.Errorf("another address has %d of %d: %+v", others, taken/2, last)
	}
}

// Cancelling numbers that were never used takes bytes of the address as well.
func TestCancelledNumbersCountForTheirAddress(t *testing.T) {
	c := newBed(t, func(cfg *Config, limits *command.Limits) {
		limits.StateBytes = 64 << 10
	})
	o, _ := c.openFrom("10.0.0.1")
	for seq := uint64(1); ; seq++ {
		a := c.call(Request{Stream: c.newStream(), Session: o.Session, Secret: &o.Secret, Body: Cancel{Claim: command.Cancel{Seq: seq}}})
		if r, ok := a.(Refused); ok {
			if r.Code != command.QuotaExceeded || !strings.Contains(r.Limit, "of clients at 10.0.0.1") {
				t.Errorf("refused with %+v", r)
			}
			break
		}
		if seq == 1_000 {
			t.Fatal("nothing was refused")
		}
	}
	if got := c.machine.Counts().Bytes; got > 33<<10 {
		t.Errorf("one address has %d bytes of 64 KiB", got)
	}
}

// Claims that a lock delay keeps after their session belong to its address until they are over.
func TestClosingClaimsCountForTheirAddress(t *testing.T) {
	c := newBed(t, func(cfg *Config, limits *command.Limits) {
		limits.ClaimsTotal = 20
	})
	o, _ := c.openFrom("10.0.0.1")
	for i := range uint64(10) {
		s := spec(fmt.Sprint("job/", i))
		s.LockDelay = command.Millis(30 * second / ms)
		a := c.call(Request{Stream: c.newStream(), Session: o.Session, Secret: &o.Secret, Body: Acquire{Claim: command.Acquire{Seq: i + 1, Floor: 1, Spec: s}}})
		if _, ok := a.(Claimed); !ok {
			t.Fatalf("%+v", a)
		}
	}
	c.until(60*second, "its lease to end", func() bool { _, live := c.machine.Session(o.Session); return !live })
	if len(c.origins.left) != 1 {
		t.Errorf("%d sessions left with closing claims", len(c.origins.left))
	}
	if _, taken, _ := c.acquireFrom("10.0.0.1", 1); taken != 0 {
		t.Error("a claim more than half was made")
	}
	c.until(60*second, "the end of the delays", func() bool { return c.machine.Counts().Closing == 0 })
	if len(c.origins.left) != 0 {
		t.Error("a session is kept that has no claims left")
	}
	if _, taken, last := c.acquireFrom("10.0.0.1", 1); taken != 1 {
		t.Errorf("after the delays: %+v", last)
	}
}
