package lead

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep/server/command"
)

func TestCommandsThatComeWhileAnEntryIsUnderWayShareTheNext(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(60_000)
	c.applied = nil
	var tags []uint64
	for i := range 100 {
		tags = append(tags, k.send(k.acquireBody(spec("job"+string(rune('a'+i))))))
		if i == 0 {
			c.tick()
		}
	}
	for _, tag := range tags {
		c.answer(tag)
	}
	entries := len(c.applied)
	if entries != 2 {
		t.Errorf("%d entries for one command and the 99 that came meanwhile, want 2", entries)
	}
}

func TestABatchHasABoundOnCommandsAndBytes(t *testing.T) {
	var q queue
	for range 10 {
		q.admit(&pending{command: command.Release{}}, 100, 0)
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
	c := newBed(t, func(cfg *Config, limits *command.Limits) { cfg.QueueCommands, cfg.BatchCommands = 10, 5 })
	k := c.open(60_000)
	held := k.acquire("held")
	queued := k.acquire("held")
	var acquires []uint64
	for i := range 30 {
		acquires = append(acquires, k.send(k.acquireBody(spec("job"+string(rune('a'+i))))))
	}
	release := k.send(Release{command.Release{Seq: held.Seq, Token: held.Token}})
	cancel := k.send(Cancel{command.Cancel{Seq: queued.Seq}})
	keep := k.send(KeepAlive{Number: 1})
	overloaded := 0
	for _, tag := range acquires {
		if a := c.answer(tag); refusal(a) == Overloaded {
			overloaded++
		}
	}
	if overloaded != 20 {
		t.Errorf("%d of 30 acquires were refused by a queue of 10", overloaded)
	}
	if a, ok := c.answer(release).(Claimed); !ok || a.Claim.State != command.Released {
		t.Errorf("release answered %+v", a)
	}
	if a, ok := c.answer(cancel).(Claimed); !ok || a.Claim.State != command.Cancelled {
		t.Errorf("cancel answered %+v", a)
	}
	if _, ok := c.answer(keep).(Kept); !ok {
		t.Error("keepalive was not answered")
	}
}

func TestTheTwoKindsOfCommandsHaveBoundsOfTheirOwn(t *testing.T) {
	var q queue
	const bound = 3
	for range bound * otherFactor {
		if !q.admit(&pending{command: command.Release{}}, bound, 0) {
			t.Fatal("a release was refused below its bound")
		}
	}
	if q.admit(&pending{command: command.Release{}}, bound, 0) {
		t.Error("a release was admitted beyond its bound")
	}
	for range bound {
		if !q.admit(&pending{command: command.Acquire{}, limited: true}, bound, 0) {
			t.Error("releases keep acquires out")
		}
	}
	if q.admit(&pending{command: command.Acquire{}, limited: true}, bound, 0) {
		t.Error("an acquire was admitted beyond its bound")
	}
}

func TestSeveralEntriesMayBeInFlight(t *testing.T) {
	c := newBed(t, func(cfg *Config, limits *command.Limits) { cfg.InFlight = 3 })
	k := c.open(60_000)
	most := 0
	var tags []uint64
	for i := range 30 {
		tags = append(tags, k.send(k.acquireBody(spec("job"+string(rune('a'+i))))))
		c.tick()
		most = max(most, c.Stats().InFlight)
	}
	for i, tag := range tags {
		if a, ok := c.answer(tag).(Claimed); !ok || a.Claim.Seq != uint64(i+1) {
			t.Errorf("claim %d answered %+v", i+1, a)
		}
	}
	if most != 3 {
		t.Errorf("at most %d entries were in flight, want 3", most)
	}
}

func TestARefusalIsSaidAfterARoundAndNothingIsProposed(t *testing.T) {
	c := newBed(t, nil)
	k := c.open(60_000)
	k.acquire("job")
	c.run(100 * ms)
	last := c.index
	body := k.acquireBody(spec("other"))
	body.Claim.Seq = 1 << 40
	a := k.call(body).(Refused)
	if a.Code != command.OutOfRange || !strings.Contains(a.Limit, "1024") {
		t.Errorf("a number far ahead was answered %+v", a)
	}
	stranger := &client{c: c, stream: c.newStream(), id: command.SessionID{9}, secret: command.Secret{9}}
	if a := stranger.call(Attach{Number: 1}).(Refused); a.Code != command.SessionUnknown {
		t.Errorf("an unknown session was answered %+v", a)
	}
	for _, b := range []Body{stranger.acquireBody(spec("job")), Release{}, Cancel{}, Close{}, KeepAlive{Unary: true}} {
		q := stranger.request(b)
		q.Secret = &stranger.secret
		if a := c.call(q).(Refused); a.Code != command.SessionUnknown {
			t.Errorf("%T of an unknown session was answered %+v", b, a)
		}
	}
	if got := c.index; got != last {
		t.Errorf("the log grew from %d to %d", last, got)
	}
}

func TestEveryHolderOfANameIsRevokedWithOneAnswer(t *testing.T) {
	c := newBed(t, nil)
	shared := command.Spec{Names: []string{"job"}, Mode: command.Shared}
	var holders []*client
	for range 5 {
		k := c.open(60_000)
		k.call(k.acquireBody(shared))
		holders = append(holders, k)
	}
	got := c.call(Request{Stream: c.newStream(), Body: Revoke{Name: "job", Command: command.Revoke{By: "ops", Reason: "r"}}})
	if got != (RevokedClaims{Count: 5}) {
		t.Errorf("answered %+v", got)
	}
	for i, k := range holders {
		if told := k.changes(); len(told) != 1 || told[0].State != command.Revoked {
			t.Errorf("holder %d was told %+v", i, told)
		}
	}
	if got := c.call(Request{Stream: c.newStream(), Body: Revoke{Name: "nobody", Command: command.Revoke{By: "ops", Reason: "r"}}}); got != (RevokedClaims{}) {
		t.Errorf("a name without holders was answered %+v", got)
	}
}

func (c *bed) revokeName(name string, last command.Token) Answer {
	c.t.Helper()
	revoke := command.Revoke{By: "ops", Reason: "r", Now: true}
	return c.call(Request{Stream: c.newStream(), Body: Revoke{Name: name, Last: last, Command: revoke}})
}

func TestARevocationUpToATokenMayBeRepeated(t *testing.T) {
	c := newBed(t, nil)
	a, b := c.open(60_000), c.open(60_000)
	last := a.acquire("job").Token
	b.acquire("job")
	for i, want := range []uint32{1, 0, 0} {
		if got := c.revokeName("job", last); got != (RevokedClaims{Count: want}) {
			t.Errorf("revocation %d was answered %+v, want %d claims", i+1, got, want)
		}
	}
	shared := command.Spec{Names: []string{"pool"}, Mode: command.Shared}
	one := a.call(a.acquireBody(shared)).(Claimed).Claim.Token
	if two := b.call(b.acquireBody(shared)).(Claimed).Claim.Token; two != one {
		t.Fatalf("shared holders have the tokens %d and %d", one, two)
	}
	if got := c.revokeName("pool", one); got != (RevokedClaims{Count: 2}) {
		t.Errorf("a shared lock: %+v", got)
	}
	b.call(b.acquireBody(shared))
	if got := c.revokeName("pool", one); got != (RevokedClaims{}) {
		t.Errorf("who shared the lock later was revoked: %+v", got)
	}
	if holders := c.machine.Lock("job", 9, 0).Holders; len(holders) != 1 || holders[0].Claim.Session != b.id {
		t.Errorf("the next holder was revoked: %+v", holders)
	}
}

func TestAllHoldersOfANameAreRevokedOrNone(t *testing.T) {
	c := newBed(t, func(cfg *Config, limits *command.Limits) { cfg.QueueCommands = 1 }) // and 8 of the others
	shared := command.Spec{Names: []string{"pool"}, Mode: command.Shared}
	var all []*client
	hold := func(n int) {
		for range n {
			k := c.open(60_000)
			if a := k.call(k.acquireBody(shared)).(Claimed); a.Claim.State != command.Granted {
				t.Fatalf("claim %+v", a)
			}
			all = append(all, k)
		}
	}
	hold(6)
	// Four others wait in the queue: it has room for four of the six revocations.
	q := &c.queue
	for range 4 {
		q.admit(&pending{command: command.Cancel{Session: all[0].id, Seq: 99}}, 1, c.now)
	}
	request := Request{Stream: c.newStream(), Tag: 1, Body: Revoke{Name: "pool", Command: command.Revoke{By: "ops", Reason: "r", Now: true}}}
	c.revoke(&request, request.Body.(Revoke), confirmedRound)
	if got := c.Replies(); len(got) != 1 || refusal(got[0].Answer) != Overloaded || len(q.waiting) != 4 {
		t.Errorf("answered %+v, and %d commands wait", got, len(q.waiting))
	}
	c.run(100 * ms)
	if n, _ := c.machine.Sizes("pool"); n != 6 {
		t.Errorf("%d of 6 holders are left", n)
	}
	hold(3)
	if a, ok := c.revokeName("pool", 0).(Refused); !ok || a.Code != command.QuotaExceeded {
		t.Errorf("nine at once were answered %+v", a)
	}
}

func TestWhatIsUnderWayOfASessionIsNotHeldAgainstItsNextRequest(t *testing.T) {
	c := newBed(t, func(_ *Config, limits *command.Limits) { limits.WaitersPerName = 1 })
	a, b := c.open(60_000), c.open(60_000)
	a.acquire("job")
	b.acquire("job")
	b.send(Cancel{command.Cancel{Seq: b.seq}}) // makes room for the next one
	if got := b.acquire("job"); got.State != command.Queued {
		t.Errorf("claim %+v", got)
	}
	stranger := c.open(60_000)
	if a := stranger.call(stranger.acquireBody(spec("job"))).(Refused); a.Code != command.QuotaExceeded {
		t.Errorf("a waiter too many was answered %+v", a)
	}
}

// Sessions with many claims that close together do not end in one entry: applying it would take
// the leader longer than an election.
func TestABatchEndsABoundedNumberOfClaims(t *testing.T) {
	var q queue
	for range 10 {
		q.admit(&pending{command: command.CloseSession{}, ends: maxEnd / 2}, 100, 0)
	}
	q.admit(&pending{command: command.CloseSession{}, ends: 2 * maxEnd}, 100, 0) // one is taken in any case
	var sizes []int
	for len(q.waiting) > 0 {
		sizes = append(sizes, len(q.take(100, 1<<20, 0)))
	}
	if want := []int{2, 2, 2, 2, 2, 1}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v, want %v", sizes, want)
	}
}

func TestACommandAboveTheLevelIsNotProposed(t *testing.T) {
	c := newBed(t, func(_ *Config, limits *command.Limits) { *limits = limits.At(1, *limits) })
	defer func() {
		if recover() == nil {
			t.Error("it is")
		}
	}()
	c.enqueue(&Request{Stream: c.newStream()}, &pending{command: command.OpenSession{TTL: 1, Hashed: true}})
	c.closeBatch()
}
