package lead

import (
	"slices"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

func TestResumingBringsWhatWasMissedBeforeAttached(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(60_000), c.open(60_000)
	one, two := a.acquire("1"), a.acquire("2")
	b.acquire("1")
	b.acquire("2")
	c.send(Request{Stream: b.stream, Body: Gone{}}) // b's stream breaks
	a.call(Release{command.Release{Seq: two.Seq, Token: two.Token}})
	a.call(Release{command.Release{Seq: one.Seq, Token: one.Token}})

	b.stream, b.number = c.newStream(), 2
	attach := b.send(Attach{Secret: b.secret, Number: 2, Seen: 0})
	keep := b.send(KeepAlive{Number: 5})
	c.answer(keep)
	// c.answer took only Kept: look at the order of all replies.
	if len(c.replies) < 3 {
		t.Fatalf("replies %+v", c.replies)
	}
	got := c.take(func(r Reply) bool { return r.Stream == b.stream })
	want := []uint64{2, 1} // seq in the order of their changes
	for i, seq := range want {
		ch, ok := got[i].Answer.(Changed)
		if !ok || ch.Claim.Seq != seq || ch.Claim.State != command.Granted || ch.Claim.Change != uint64(i+1) {
			t.Errorf("reply %d is %+v, want the grant of claim %d as change %d", i, got[i], seq, i+1)
		}
	}
	if at, ok := got[2].Answer.(Attached); !ok || at.Change != 2 || got[2].Tag != attach {
		t.Errorf("reply 2 is %+v, want Attached with change 2", got[2])
	}

	if a, missed := b.attach(1); a.(Attached).Change != 2 || len(missed) != 1 || missed[0].Seq != 1 {
		t.Errorf("resuming from change 1: %+v behind %+v", a, missed)
	}
}

func TestKeptComesBehindTheChangesThatItCounts(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(60_000), c.open(60_000)
	seen := uint64(0)
	for i := range 20 {
		got := a.acquire("job")
		b.acquire("job")
		keep := b.send(KeepAlive{Number: uint64(i)})
		a.send(Release{command.Release{Seq: got.Seq, Token: got.Token}})
		c.run(Time(i) * 3 * ms)
		c.until(second, "kept", func() bool {
			return slices.ContainsFunc(c.replies, func(r Reply) bool { return r.Tag == keep })
		})
		told := seen
		for _, r := range c.take(func(r Reply) bool { return r.Stream == b.stream }) {
			switch an := r.Answer.(type) {
			case Changed:
				told = an.Claim.Change
			case Kept:
				if an.Change > told {
					t.Errorf("Kept counts %d changes, %d were told", an.Change, told)
				}
			}
		}
		c.run(20 * ms)
		for _, hd := range c.machine.Lock("job", 100, 0).Holders {
			seen = b.call(Release{command.Release{Seq: b.seq, Token: hd.Token}}).(Claimed).Claim.Change
		}
		b.changes()
	}
}

func TestASessionHasOneStreamAndALowerNumberCannotTakeItBack(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(60_000)
	first := k.stream
	if a, _ := k.attach(0); a.(Attached).Change != 0 {
		t.Fatalf("attach answered %+v", a)
	}
	if a := c.call(Request{Stream: first, Session: k.id, Body: KeepAlive{}}); refusal(a) != NotAttached {
		t.Errorf("a keepalive on the old stream was answered %+v", a)
	}
	if a := c.call(Request{Stream: first, Session: k.id, Body: k.acquireBody(spec("job"))}); refusal(a) != NotAttached {
		t.Errorf("an acquire on the old stream was answered %+v", a)
	}
	for _, number := range []uint64{1, 2} {
		a := c.call(Request{Stream: first, Session: k.id, Body: Attach{Secret: k.secret, Number: number}})
		if refusal(a) != OldAttachment {
			t.Errorf("attach with number %d was answered %+v", number, a)
		}
	}
	if a := c.call(Request{Stream: first, Session: k.id, Body: Attach{Number: 9}}).(Refused); a.Code != command.SessionUnknown {
		t.Errorf("attach with a wrong secret was answered %+v", a)
	}
	c.send(Request{Stream: first, Body: Gone{}}) // the old one closes late
	if a, ok := k.call(KeepAlive{Number: 4}).(Kept); !ok || a.Number != 4 {
		t.Errorf("the last stream lost the session: %+v", a)
	}
}

func TestRequestsBehindAnAttachWaitForIt(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(60_000)
	k.stream, k.number = c.newStream(), 2
	attach := k.send(Attach{Secret: k.secret, Number: 2})
	acquire := k.send(k.acquireBody(spec("job")))
	read := k.send(ReadLock{Name: "job", Holders: 100})
	if a, ok := c.answer(attach).(Attached); !ok {
		t.Fatalf("attach answered %+v", a)
	}
	if a := c.answer(acquire).(Claimed); a.Claim.State != command.Granted {
		t.Errorf("acquire answered %+v", a)
	}
	c.answer(read)

	// A stream that closes meanwhile leaves nothing behind.
	k.stream, k.number = c.newStream(), 3
	k.send(Attach{Secret: k.secret, Number: 3})
	k.send(k.acquireBody(spec("other")))
	k.send(Gone{})
	c.run(second)
	if p, s := &c.parking, &c.streams; len(p.of) != 0 || p.count != 0 || s.known(k.stream) || s.sessions[k.id].stream == nil {
		t.Errorf("left behind: parked %v, stream %v", p.of, s.of[k.stream])
	}
}

func TestAUnaryWaiterIsToldOfItsGrant(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(60_000), c.open(60_000)
	got := a.acquire("job")
	call := c.newStream()
	body := b.acquireBody(spec("job"))
	body.Follow = true
	unary := Request{Stream: call, Session: b.id, Secret: &b.secret, Body: body}
	if st := c.call(unary).(Claimed).Claim.State; st != command.Queued {
		t.Fatalf("unary acquire: state %v", st)
	}
	a.call(Release{command.Release{Seq: got.Seq, Token: got.Token}})
	told := c.take(func(r Reply) bool { return r.Stream == call })
	if len(told) != 1 || told[0].Answer.(Changed).Claim.State != command.Granted {
		t.Errorf("the call was told %+v", told)
	}
	if n := len(b.changes()); n != 1 {
		t.Errorf("the session's stream was told %d changes, want 1", n)
	}
	c.send(Request{Stream: call, Body: Gone{}})
	c.run(100 * ms)
	if n := len(c.machine.Lock("job", 100, 0).Holders); n != 1 {
		t.Errorf("%d holders after the call ended, want the grant to stay", n)
	}
}

func TestAUnaryCallThatEndsInTheQueueCancelsItsClaim(t *testing.T) {
	for _, when := range []string{"before its answer", "after its answer"} {
		t.Run(when, func(t *testing.T) {
			c := newBed(t, nil)
			a, b := c.open(60_000), c.open(60_000)
			a.acquire("job")
			call := c.newStream()
			body := b.acquireBody(spec("job"))
			body.Follow = true
			tag := c.send(Request{Stream: call, Session: b.id, Secret: &b.secret, Body: body})
			if when == "after its answer" {
				c.answer(tag)
			}
			c.send(Request{Stream: call, Body: Gone{}})
			c.run(200 * ms)
			if n := c.machine.Lock("job", 100, 10).Waiting; n != 0 {
				t.Errorf("%d waiters are left", n)
			}
			if n := len(c.streams.of); n != 2 {
				t.Errorf("%d streams are known, want the two that are open", n)
			}
		})
	}
}

func TestAnAbandonedCallLeavesTheClaimToOthersThatFollowIt(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(60_000), c.open(60_000)
	got := a.acquire("job")
	body := b.acquireBody(spec("job"))
	body.Follow = true
	one, two := c.newStream(), c.newStream()
	for _, stream := range []StreamID{one, two} {
		c.call(Request{Stream: stream, Session: b.id, Secret: &b.secret, Body: body})
	}
	c.send(Request{Stream: one, Body: Gone{}})
	c.run(50 * ms)
	a.call(Release{command.Release{Seq: got.Seq, Token: got.Token}})
	told := c.take(func(r Reply) bool { return r.Stream == two })
	if len(told) != 1 || told[0].Answer.(Changed).Claim.State != command.Granted {
		t.Errorf("the call that stayed was told %+v", told)
	}
}

// The retry of a call can be on its way through the log when the first call is given up: the claim
// then ends without the retry's doing, and the retry must learn of that rather than wait forever.
func TestARetryLearnsThatTheFirstCallsEndEndedTheClaim(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(60_000), c.open(60_000)
	a.acquire("job")
	body := b.acquireBody(spec("job"))
	body.Follow = true
	one, two := c.newStream(), c.newStream()
	c.call(Request{Stream: one, Session: b.id, Secret: &b.secret, Body: body})
	tag := c.send(Request{Stream: two, Session: b.id, Secret: &b.secret, Body: body})
	c.send(Request{Stream: one, Body: Gone{}})
	if st := c.answer(tag).(Claimed).Claim.State; st != command.Queued {
		t.Fatalf("the retry is in state %v, want it queued", st)
	}
	c.run(200 * ms)
	told := c.take(func(r Reply) bool { return r.Stream == two })
	if len(told) != 1 || told[0].Answer.(Changed).Claim.State != command.WaitEnded {
		t.Errorf("the retry was told %+v, want that the wait has ended", told)
	}
}

// In the log, the release that grants the claim, and the answer of a retry, can come before what
// the end of the first call asks for. The grant was reported to the retry, so the retry must keep
// it.
func TestTheEndOfACallNeverTakesAGrantBack(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(60_000), c.open(60_000)
	got := a.acquire("job")
	body := b.acquireBody(spec("job"))
	body.Follow = true
	one, two := c.newStream(), c.newStream()
	c.call(Request{Stream: one, Session: b.id, Secret: &b.secret, Body: body})
	a.send(Release{command.Release{Seq: got.Seq, Token: got.Token}})
	tag := c.send(Request{Stream: two, Session: b.id, Secret: &b.secret, Body: body})
	c.send(Request{Stream: one, Body: Gone{}})
	if st := c.answer(tag).(Claimed).Claim.State; st != command.Granted {
		t.Fatalf("the retry is in state %v, want it granted", st)
	}
	c.run(200 * ms)
	if holders := c.machine.Lock("job", 100, 0).Holders; len(holders) != 1 || holders[0].Claim.Session != b.id {
		t.Errorf("holders %+v, want the retry's grant to stay", holders)
	}
}

func TestFollowersLearnOfEveryEndOfTheirClaim(t *testing.T) {
	tests := []struct {
		name string
		end  func(c *bed, k *client)
		want command.State
	}{
		{"cancelled by another call", func(c *bed, k *client) { k.call(Cancel{command.Cancel{Seq: k.seq}}) }, command.Cancelled},
		{"session closed", func(c *bed, k *client) { k.call(Close{}) }, command.Cancelled},
		{"session expired", func(c *bed, k *client) { c.run(lease(ttl) + second) }, command.Expired},
		{"session revoked", func(c *bed, k *client) {
			c.call(Request{Stream: c.newStream(), Body: Revoke{Command: command.Revoke{Claim: command.ClaimID{Session: k.id}, By: "ops", Reason: "r"}}})
		}, command.Revoked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newBed(t, nil)
			a, b := c.open(300_000), c.open(ttl)
			a.acquire("job")
			call := c.newStream()
			body := b.acquireBody(spec("job"))
			body.Follow = true
			c.call(Request{Stream: call, Session: b.id, Secret: &b.secret, Body: body})
			tt.end(c, b)
			told := c.take(func(r Reply) bool { return r.Stream == call })
			if len(told) != 1 || told[0].Answer.(Changed).Claim.State != tt.want {
				t.Errorf("the call was told %+v, want one change to state %v", told, tt.want)
			}
		})
	}
}

func TestADeposedLeaderTellsEveryStream(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(60_000)
	k.acquire("job")
	k2 := c.open(60_000)
	call := c.newStream()
	body := k2.acquireBody(spec("job"))
	body.Follow = true
	c.call(Request{Stream: call, Session: k2.id, Secret: &k2.secret, Body: body})
	c.replies = nil
	c.change()
	for _, stream := range []StreamID{k.stream, k2.stream, call} {
		got := c.take(func(r Reply) bool { return r.Stream == stream })
		if len(got) != 1 || got[0].Tag != 0 || refusal(got[0].Answer) != NotLeader {
			t.Errorf("stream %d was told %+v, want NotLeader once", stream, got)
		}
	}
	// The claim is in the log: the waiter finds its place again at the new leader.
	if a, missed := k2.attach(0); a.(Attached).Change != 0 || len(missed) != 0 {
		t.Errorf("resumed with %+v, %+v", a, missed)
	}
	k2.seq--
	if got := k2.acquire("job"); got.State != command.Queued || got.Position != 1 {
		t.Errorf("the retry has state %+v, want its old place", got)
	}
}

func TestAnswersAndChangesOfOneClaimKeepTheirOrder(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(60_000), c.open(60_000)
	got := a.acquire("job")
	// All in one entry: the claim is queued, then granted by the release, then cancelled.
	acquire := b.send(b.acquireBody(spec("job")))
	a.send(Release{command.Release{Seq: got.Seq, Token: got.Token}})
	cancel := b.send(Cancel{command.Cancel{Seq: b.seq}})
	c.run(100 * ms)
	var order []string
	for _, r := range c.take(func(r Reply) bool { return r.Stream == b.stream }) {
		switch an := r.Answer.(type) {
		case Claimed:
			if r.Tag == acquire && an.Claim.State == command.Queued {
				order = append(order, "queued")
			}
			if r.Tag == cancel && an.Claim.State == command.Cancelled {
				order = append(order, "cancelled")
			}
		case Changed:
			order = append(order, "told: "+an.Claim.State.String())
		}
	}
	if !slices.Equal(order, []string{"queued", "told: granted", "told: cancelled", "cancelled"}) {
		t.Errorf("the client saw %v", order)
	}
}

func TestAUnaryKeepAliveBringsTheChanges(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(60_000), c.open(60_000)
	got := a.acquire("job")
	b.acquire("job")
	a.call(Release{command.Release{Seq: got.Seq, Token: got.Token}})
	kept := c.call(Request{Stream: c.newStream(), Session: b.id, Secret: &b.secret, Body: KeepAlive{Number: 3, Unary: true}}).(Kept)
	if kept.Change != 1 || len(kept.Changes) != 1 || kept.Changes[0].State != command.Granted {
		t.Errorf("kept %+v", kept)
	}
	wrong := command.Secret{1}
	if a := c.call(Request{Stream: c.newStream(), Session: b.id, Secret: &wrong, Body: KeepAlive{Unary: true}}).(Refused); a.Code != command.SessionUnknown {
		t.Errorf("a wrong secret was answered %+v", a)
	}
}

func TestAnEndedSessionIsToldItsEndAndMayConfirmIt(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(ttl), c.open(60_000)
	a.acquire("job")
	b.acquire("job")
	c.call(Request{Stream: c.newStream(), Body: Revoke{Command: command.Revoke{Claim: command.ClaimID{Session: a.id}, By: "ops", Reason: "r"}}})
	if e, ok := a.over(); !ok || e.Code != command.SessionRevoked || e.By != "ops" {
		t.Fatalf("told %+v", e)
	}
	late := c.newStream()
	a2 := c.call(Request{Stream: late, Session: a.id, Body: Attach{Secret: a.secret, Number: 2}}).(Refused)
	if a2.Code != command.SessionRevoked {
		t.Errorf("attach to an ended session was answered %+v", a2)
	}
	if got := c.take(func(r Reply) bool { return r.Stream == late }); len(got) != 1 || got[0].Answer.(Ended).By != "ops" {
		t.Errorf("before the refusal came %+v, want who revoked it", got)
	}
	if len(b.changes()) != 0 {
		t.Fatal("granted although the old holder has not confirmed")
	}
	a.call(Close{})
	if told := b.changes(); len(told) != 1 || told[0].State != command.Granted {
		t.Errorf("after the holder confirmed, the waiter was told %+v", told)
	}
	c.run(lease(ttl) + second)
	if _, left := c.streams.sessions[a.id]; left {
		t.Error("the ended session is still bound")
	}
}
