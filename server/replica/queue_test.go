package replica

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/machine"
)

func TestCommandsThatComeWhileAnEntryIsUnderWayShareTheNext(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	k := c.open(h, 60_000)
	h.applied = nil
	var tags []uint64
	for i := range 100 {
		tags = append(tags, k.send(k.acquireBody(spec("job"+string(rune('a'+i))))))
		if i == 0 {
			c.tick()
		}
	}
	for _, tag := range tags {
		c.answer(h, tag)
	}
	entries := 0
	for _, a := range h.applied {
		if a.Entry != nil {
			entries++
		}
	}
	if entries != 2 {
		t.Errorf("%d entries for one command and the 99 that came meanwhile, want 2", entries)
	}
}

func TestABatchHasABoundOnCommandsAndBytes(t *testing.T) {
	var q queue
	for range 10 {
		q.admit(&pending{command: machine.Release{}}, 100, 0)
	}
	if got := q.take(4, 1<<20, 0); len(got) != 4 || len(q.waiting) != 6 {
		t.Errorf("took %d commands of 10 with a bound of 4", len(got))
	}
	size := q.waiting[0].size
	if got := q.take(100, 2*size, 0); len(got) != 2 {
		t.Errorf("took %d commands with a bound of two commands' bytes", len(got))
	}
	if got := q.take(100, 1, 0); len(got) != 1 {
		t.Errorf("took %d commands with a bound below one command, want 1", len(got))
	}
	if q.take(100, 1<<20, 0); q.bytes != 0 || q.limited != 0 {
		t.Errorf("an empty queue has %d bytes, %d limited", q.bytes, q.limited)
	}
}

func TestAFullQueueRefusesAcquireAndNotWhatFreesLocks(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.QueueCommands, cfg.BatchCommands = 10, 5 })
	h := c.leader()
	k := c.open(h, 60_000)
	held := k.acquire("held")
	queued := k.acquire("held")
	var acquires []uint64
	for i := range 30 {
		acquires = append(acquires, k.send(k.acquireBody(spec("job"+string(rune('a'+i))))))
	}
	release := k.send(Release{machine.Release{Seq: held.Seq, Token: held.Token}})
	cancel := k.send(Cancel{machine.Cancel{Seq: queued.Seq}})
	keep := k.send(KeepAlive{Number: 1})
	overloaded := 0
	for _, tag := range acquires {
		if a := c.answer(h, tag); refusal(a) == Overloaded {
			overloaded++
		}
	}
	if overloaded != 20 {
		t.Errorf("%d of 30 acquires were refused by a queue of 10", overloaded)
	}
	if a, ok := c.answer(h, release).(Claimed); !ok || a.Claim.State != machine.Released {
		t.Errorf("release answered %+v", a)
	}
	if a, ok := c.answer(h, cancel).(Claimed); !ok || a.Claim.State != machine.Cancelled {
		t.Errorf("cancel answered %+v", a)
	}
	if _, ok := c.answer(h, keep).(Kept); !ok {
		t.Error("keepalive was not answered")
	}
}

func TestTheTwoKindsOfCommandsHaveBoundsOfTheirOwn(t *testing.T) {
	var q queue
	const bound = 3
	for range bound * otherFactor {
		if !q.admit(&pending{command: machine.Release{}}, bound, 0) {
			t.Fatal("a release was refused below its bound")
		}
	}
	if q.admit(&pending{command: machine.Release{}}, bound, 0) {
		t.Error("a release was admitted beyond its bound")
	}
	for range bound {
		if !q.admit(&pending{command: machine.Acquire{}, limited: true}, bound, 0) {
			t.Error("releases keep acquires out")
		}
	}
	if q.admit(&pending{command: machine.Acquire{}, limited: true}, bound, 0) {
		t.Error("an acquire was admitted beyond its bound")
	}
}

func TestSeveralEntriesMayBeInFlight(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.InFlight = 3 })
	var floors int
	c.until(10*second, "floor", func() bool { // while clients are already asking
		for _, h := range c.hosts {
			c.send(h, Request{Stream: 99, Body: Open{TTL: 1}})
		}
		return c.hosts[0].r.Status().Counts.NextToken != 0
	})
	c.run(100 * ms)
	for _, a := range c.hosts[0].applied {
		if a.Entry != nil {
			for _, cmd := range a.Entry.Commands {
				if _, ok := cmd.(machine.SetTokenFloor); ok {
					floors++
				}
			}
		}
	}
	if floors != 1 {
		t.Errorf("%d token floors", floors)
	}
	h := c.leader()
	k := c.open(h, 60_000)
	most := 0
	var tags []uint64
	for i := range 30 {
		tags = append(tags, k.send(k.acquireBody(spec("job"+string(rune('a'+i))))))
		c.tick()
		most = max(most, h.r.Status().InFlight)
	}
	for i, tag := range tags {
		if a, ok := c.answer(h, tag).(Claimed); !ok || a.Claim.Seq != uint64(i+1) {
			t.Errorf("claim %d answered %+v", i+1, a)
		}
	}
	if most != 3 {
		t.Errorf("at most %d entries were in flight, want 3", most)
	}
}

func TestARefusalIsSaidAfterARoundAndNothingIsProposed(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	k := c.open(h, 60_000)
	k.acquire("job")
	c.run(100 * ms)
	last := h.r.Status().LastIndex
	body := k.acquireBody(spec("other"))
	body.Claim.Seq = 1 << 40
	a := k.call(body).(Refused)
	if a.Code != machine.OutOfRange || !strings.Contains(a.Limit, "1024") {
		t.Errorf("a number far ahead was answered %+v", a)
	}
	stranger := &client{c: c, host: h, stream: c.newStream(), id: machine.SessionID{9}, secret: machine.Secret{9}}
	if a := stranger.call(Attach{Number: 1}).(Refused); a.Code != machine.SessionUnknown {
		t.Errorf("an unknown session was answered %+v", a)
	}
	for _, b := range []Body{stranger.acquireBody(spec("job")), Release{}, Cancel{}, Close{}, KeepAlive{Unary: true}} {
		q := stranger.request(b)
		q.Secret = &stranger.secret
		if a := c.call(h, q).(Refused); a.Code != machine.SessionUnknown {
			t.Errorf("%T of an unknown session was answered %+v", b, a)
		}
	}
	if got := h.r.Status().LastIndex; got != last {
		t.Errorf("the log grew from %d to %d", last, got)
	}
}

func TestEveryHolderOfANameIsRevokedWithOneAnswer(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	shared := machine.Spec{Names: []string{"job"}, Mode: machine.Shared}
	var holders []*client
	for range 5 {
		k := c.open(h, 60_000)
		k.call(k.acquireBody(shared))
		holders = append(holders, k)
	}
	got := c.call(h, Request{Stream: c.newStream(), Body: Revoke{Name: "job", Command: machine.Revoke{By: "ops", Reason: "r"}}})
	if got != (RevokedClaims{Count: 5}) {
		t.Errorf("answered %+v", got)
	}
	for i, k := range holders {
		if told := k.changes(); len(told) != 1 || told[0].State != machine.Revoked {
			t.Errorf("holder %d was told %+v", i, told)
		}
	}
	if got := c.call(h, Request{Stream: c.newStream(), Body: Revoke{Name: "nobody", Command: machine.Revoke{By: "ops", Reason: "r"}}}); got != (RevokedClaims{}) {
		t.Errorf("a name without holders was answered %+v", got)
	}
}

func (c *cluster) revokeName(h *host, name string, last machine.Token) Answer {
	c.t.Helper()
	command := machine.Revoke{By: "ops", Reason: "r", Now: true}
	return c.call(h, Request{Stream: c.newStream(), Body: Revoke{Name: name, Last: last, Command: command}})
}

func TestARevocationUpToATokenMayBeRepeated(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	a, b := c.open(h, 60_000), c.open(h, 60_000)
	last := a.acquire("job").Token
	b.acquire("job")
	for i, want := range []uint32{1, 0, 0} {
		if got := c.revokeName(h, "job", last); got != (RevokedClaims{Count: want}) {
			t.Errorf("revocation %d was answered %+v, want %d claims", i+1, got, want)
		}
	}
	shared := machine.Spec{Names: []string{"pool"}, Mode: machine.Shared}
	one := a.call(a.acquireBody(shared)).(Claimed).Claim.Token
	if two := b.call(b.acquireBody(shared)).(Claimed).Claim.Token; two != one {
		t.Fatalf("shared holders have the tokens %d and %d", one, two)
	}
	if got := c.revokeName(h, "pool", one); got != (RevokedClaims{Count: 2}) {
		t.Errorf("a shared lock: %+v", got)
	}
	b.call(b.acquireBody(shared))
	if got := c.revokeName(h, "pool", one); got != (RevokedClaims{}) {
		t.Errorf("who shared the lock later was revoked: %+v", got)
	}
	if holders := h.r.machine.Lock("job", 9, 0).Holders; len(holders) != 1 || holders[0].Claim.Session != b.id {
		t.Errorf("the next holder was revoked: %+v", holders)
	}
}

func TestAllHoldersOfANameAreRevokedOrNone(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.QueueCommands = 1 }) // and 8 of the others
	h := c.leader()
	shared := machine.Spec{Names: []string{"pool"}, Mode: machine.Shared}
	var all []*client
	hold := func(n int) {
		for range n {
			k := c.open(h, 60_000)
			if a := k.call(k.acquireBody(shared)).(Claimed); a.Claim.State != machine.Granted {
				t.Fatalf("claim %+v", a)
			}
			all = append(all, k)
		}
	}
	hold(6)
	// Four others wait in the queue: it has room for four of the six revocations.
	q := &h.r.lead.queue
	for range 4 {
		q.admit(&pending{command: machine.Cancel{Session: all[0].id, Seq: 99}}, 1, h.r.now)
	}
	request := Request{Stream: c.newStream(), Tag: 1, Body: Revoke{Name: "pool", Command: machine.Revoke{By: "ops", Reason: "r", Now: true}}}
	h.r.revoke(&request, request.Body.(Revoke), confirmedRound)
	if n := len(h.r.out.Replies); n != 1 || refusal(h.r.out.Replies[0].Answer) != Overloaded || len(q.waiting) != 4 {
		t.Errorf("answered %+v, and %d commands wait", h.r.out.Replies, len(q.waiting))
	}
	c.run(100 * ms)
	if n, _ := h.r.machine.Sizes("pool"); n != 6 {
		t.Errorf("%d of 6 holders are left", n)
	}
	hold(3)
	if a, ok := c.revokeName(h, "pool", 0).(Refused); !ok || a.Code != machine.QuotaExceeded {
		t.Errorf("nine at once were answered %+v", a)
	}
}

func TestWhatIsUnderWayOfASessionIsNotHeldAgainstItsNextRequest(t *testing.T) {
	limits := machine.DefaultLimits()
	limits.WaitersPerName = 1
	c := newCluster(t, 3, func(cfg *Config) { cfg.Limits = limits })
	h := c.leader()
	a, b := c.open(h, 60_000), c.open(h, 60_000)
	a.acquire("job")
	b.acquire("job")
	b.send(Cancel{machine.Cancel{Seq: b.seq}}) // makes room for the next one
	if got := b.acquire("job"); got.State != machine.Queued {
		t.Errorf("claim %+v", got)
	}
	stranger := c.open(h, 60_000)
	if a := stranger.call(stranger.acquireBody(spec("job"))).(Refused); a.Code != machine.QuotaExceeded {
		t.Errorf("a waiter too many was answered %+v", a)
	}
}

// Sessions with many claims that close together do not end in one entry: applying it would take
// the leader longer than an election.
func TestABatchEndsABoundedNumberOfClaims(t *testing.T) {
	var q queue
	for range 10 {
		q.admit(&pending{command: machine.CloseSession{}, ends: maxEnd / 2}, 100, 0)
	}
	q.admit(&pending{command: machine.CloseSession{}, ends: 2 * maxEnd}, 100, 0) // one is taken in any case
	var sizes []int
	for len(q.waiting) > 0 {
		sizes = append(sizes, len(q.take(100, 1<<20, 0)))
	}
	if want := []int{2, 2, 2, 2, 2, 1}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v, want %v", sizes, want)
	}
}
