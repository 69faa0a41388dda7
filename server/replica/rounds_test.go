package replica

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/machine"
)

func refusal(a Answer) Refusal {
	if r, ok := a.(Refused); ok {
		return r.Reason
	}
	return 255
}

func TestAFollowerAnswersNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	k := c.open(c.lead(1), ttl)
	k.host = c.host(2)
	for _, b := range []Body{
		KeepAlive{Number: 1}, k.acquireBody(spec("job")), Release{}, Cancel{}, Close{}, Attach{Secret: k.secret, Number: 9},
		Open{TTL: ttl}, ReadLock{Name: "job", Holders: 100}, ReadLocks{}, ReadSessions{}, ReadHistory{}, Revoke{Name: "job"},
	} {
		if a := k.call(b); refusal(a) != NotLeader {
			t.Errorf("%T on a follower was answered %+v", b, a)
		}
	}
}

func TestALeaderThatIsCutOffAnswersNothingThatNeedsARound(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, ttl)
	unknown := &client{c: c, host: h, stream: c.newStream(), id: machine.SessionID{1}}
	far := k.acquireBody(spec("far"))
	far.Claim.Seq = 1 << 40
	c.isolate(1)
	tags := []uint64{
		k.send(KeepAlive{Number: 1}), k.send(ReadLock{Name: "job", Holders: 100}),
		unknown.send(Attach{Number: 1}), unknown.send(Close{}), k.send(far), k.send(k.acquireBody(spec("job"))),
		c.send(h, Request{Stream: c.newStream(), Session: unknown.id, Secret: &unknown.secret, Body: Close{}}),
		c.send(h, Request{Stream: c.newStream(), Session: unknown.id, Secret: &unknown.secret, Body: KeepAlive{Unary: true}}),
		c.send(h, Request{Stream: c.newStream(), Body: Revoke{Name: "nobody"}}),
	}
	c.run(300 * ms)
	if !h.r.Status().Serving {
		t.Fatal("the leader gave up before the test looked")
	}
	if len(h.replies) != 0 {
		t.Errorf("answered without a quorum: %+v", h.replies)
	}
	c.until(3*second, "deposition", func() bool { return h.r.Status().Role != Leader })
	for i, tag := range tags {
		if a := c.answer(h, tag); refusal(a) != NotLeader {
			t.Errorf("request %d was answered %+v after the deposition", i, a)
		}
	}
}

func TestARoundThatTheNextLeaderConfirmsCountsForNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	old := c.lead(1)
	k := c.open(old, ttl)
	term := old.r.term
	c.isolate(1)
	k.send(KeepAlive{Number: 7})
	c.run(100 * ms)
	number := old.r.lead.rounds.number
	next := c.leader(1)
	c.heal()
	c.until(3*second, "deposition", func() bool { return old.r.Status().Role == Follower && old.r.Status().Leader == next.id })
	old.replies = nil
	// What Raft does with a round of a deposed leader: the new one confirms it and sends it back.
	confirmed := &raftpb.Message{
		Type: raftpb.MsgReadIndexResp.Enum(), From: new(next.id), To: new(uint64(1)), Term: new(next.r.term),
		Index: new(next.r.applied), Entries: []*raftpb.Entry{{Data: roundContext(1, term, number)}},
	}
	old.inputs = append(old.inputs, Message{confirmed})
	c.run(100 * ms)
	for _, r := range old.replies {
		if _, ok := r.Answer.(Kept); ok {
			t.Errorf("a follower renewed a lease: %+v", r)
		}
	}

	// Nor may it count in a later term of the old leader, nor may one of another replica.
	again := c.lead(1)
	again.r.lead.rounds.open = []round{{number: number, oldest: never}}
	for _, context := range [][]byte{
		roundContext(1, term, number), roundContext(2, again.r.term, number), []byte("short"), nil,
	} {
		again.r.confirm(raft.ReadState{RequestCtx: context})
		if n := len(again.r.lead.rounds.ready); n != 0 {
			t.Errorf("the round %x was taken for number %d of term %d", context, number, again.r.term)
		}
	}
	again.r.confirm(raft.ReadState{RequestCtx: roundContext(1, again.r.term, number)})
	if n := len(again.r.lead.rounds.ready); n != 1 {
		t.Error("its own round was not confirmed")
	}
}

// TestARoundThatBeganBeforeAKeepAliveRenewsNothing: the acknowledgements of a round show who led
// when they were sent. A leader that sleeps while they lie in its socket may read them together
// with a keepalive that is seconds younger, when another leader is already timing the lease.
func TestARoundThatBeganBeforeAKeepAliveRenewsNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	old := c.lead(1)
	k := c.open(old, ttl)
	c.run(100 * ms)
	read := k.send(ReadLock{Name: "job", Holders: 100})
	c.until(10*ms, "open round", func() bool { return len(old.r.lead.rounds.open) > 0 })
	old.paused = true
	c.run(5 * ms)
	acks := old.inputs
	old.inputs = nil
	c.leader(1)
	c.run(2 * second)

	later := old.inputs // from other sockets
	old.inputs = nil
	keep := k.send(KeepAlive{Number: 1})
	old.inputs = append(old.inputs, acks...)
	old.paused = false
	c.turn(old)
	answered := func(tag uint64) []Reply { return old.take(func(r Reply) bool { return r.Tag == tag }) }
	if got := answered(read); len(got) != 1 {
		t.Fatalf("the round was not confirmed: the test proves nothing: %+v", got)
	}
	if got := answered(keep); len(got) != 0 {
		t.Errorf("answered %+v, sent 2 s after another leader began to time the lease", got)
	}
	old.inputs = append(later, old.inputs...)
	if a := c.answer(old, keep); refusal(a) != NotLeader {
		t.Errorf("in the end answered %+v", a)
	}
}

func TestAnAnswerWaitsUntilWhatWasCommittedBeforeIsApplied(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, ttl)
	c.run(100 * ms)
	// The others commit, but the leader applies nothing that is not on its own disk.
	h.disk.stuck = true
	k.send(k.acquireBody(spec("job")))
	c.run(20 * ms)
	if s := h.r.Status(); s.Committed == s.Applied {
		t.Fatalf("nothing is committed and not applied: %+v", s)
	}
	read, keep := k.send(ReadLock{Name: "job", Holders: 100}), k.send(KeepAlive{Number: 1})
	c.run(200 * ms)
	if len(h.replies) != 0 {
		t.Fatalf("answered %+v from the state before", h.replies)
	}
	h.disk.stuck = false
	if a := c.answer(h, read).(LockRead); len(a.Lock.Holders) != 1 {
		t.Errorf("read %+v", a)
	}
	c.answer(h, keep)
}

func TestADeposedLeaderRenewsNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	k := c.open(c.lead(1), ttl)
	c.lead(2)
	var tags []uint64
	for i := range 20 {
		tags = append(tags, k.send(KeepAlive{Number: uint64(i)}))
		c.run(50 * ms)
	}
	for _, tag := range tags {
		if a := c.answer(c.host(1), tag); refusal(a) != NotLeader {
			t.Fatalf("a keepalive was answered %+v by a replica that leads no longer", a)
		}
	}
}

func TestReadsDoNotWaitForTheCadenceOfKeepAlives(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	k := c.open(h, ttl)
	k.acquire("job")
	for range 20 {
		from := c.now
		a := k.call(ReadLock{Name: "job", Holders: 100, Waiters: 1})
		if took := c.now - from; took > 6*ms {
			t.Errorf("a read took %d ms with a network of 1 ms", took/ms)
		}
		if got := a.(LockRead).Lock.Holders; len(got) != 1 || got[0].Claim.Session != k.id {
			t.Errorf("read %+v", a)
		}
	}
}

func TestKeepAlivesShareRounds(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	var clients []*client
	for range 30 {
		clients = append(clients, c.open(h, ttl))
	}
	c.run(second)
	before := h.r.lead.rounds.number
	for range 300 { // one keepalive a millisecond
		clients[int(c.now/ms)%len(clients)].send(KeepAlive{})
		c.tick()
	}
	if n := h.r.lead.rounds.number - before; n < 8 || n > 13 {
		t.Errorf("%d rounds in 300 ms, want one each 30 ms", n)
	}
	c.run(second) // without requests
	before = h.r.lead.rounds.number
	c.run(second)
	if n := h.r.lead.rounds.number - before; n < 3 || n > 5 {
		t.Errorf("%d rounds in an idle second, want 4", n)
	}
}

func TestAReadSeesWhatWasAnsweredBefore(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	k := c.open(h, ttl)
	for range 5 {
		got := k.acquire("job")
		k.call(Release{machine.Release{Seq: got.Seq, Token: got.Token}})
		if a := k.call(ReadLock{Name: "job", Holders: 100}).(LockRead); len(a.Lock.Holders) != 0 {
			t.Errorf("a read after a release shows %+v", a.Lock.Holders)
		}
	}
	list := k.call(ReadHistory{Name: "job", Limit: 100}).(HistoryRead)
	if len(list.Events) != 10 || !list.Complete {
		t.Errorf("history has %d events, complete=%v, want 10 in all", len(list.Events), list.Complete)
	}
	k.acquire("a/1")
	k.acquire("b/1")
	if a := k.call(ReadLocks{Prefix: "a/", Limit: 10}).(LocksRead); len(a.Locks) != 1 || a.More {
		t.Errorf("listed %+v", a)
	}
}

func TestTheNumberOfHeldRequestsIsBounded(t *testing.T) {
	var s rounds
	for range maxHeldReads / 2 {
		if !s.hold(held{Request: Request{Body: ReadLock{}}, cost: 1}, true) {
			t.Fatal("refused below the bound")
		}
	}
	if s.hold(held{Request: Request{Body: ReadLock{}}, cost: 1}, true) {
		t.Error("a read was held beyond the bound")
	}
	other := Origin{Connection: 2}
	for range maxHeldReads / 4 {
		if !s.hold(held{Request: Request{Body: ReadLock{}, From: other}, cost: 1}, true) {
			t.Fatal("one connection takes what is another's")
		}
	}
	if !s.hold(held{Request: Request{Body: KeepAlive{}, Received: 5}}, false) {
		t.Error("reads keep keepalives out")
	}
	if s.oldest() != 5 {
		t.Errorf("oldest keepalive at %v, want 5", s.oldest())
	}
}

// crowded returns a machine whose name "job" has many shared holders and, after an exclusive claim,
// waiters.
func crowded(holders, waiters int) *machine.Machine {
	m := machine.New()
	limits := machine.DefaultLimits()
	limits.ClaimsPerSession, limits.RequestWindow = 1_000_000, 1_000_000
	out := m.Apply(1, 1, &machine.Entry{Commands: []machine.Command{
		machine.SetLimits{Limits: limits}, machine.SetTokenFloor{Floor: 1}, machine.OpenSession{TTL: 1, ClientNumbered: true},
	}})
	e := machine.Entry{}
	for seq := range uint64(holders + waiters) {
		a := machine.Acquire{Session: out.Results[2].Session, Seq: seq + 1, Spec: machine.Spec{Names: []string{"job"}}}
		if int(seq) < holders {
			a.Spec.Mode = machine.Shared
		}
		e.Commands = append(e.Commands, a)
	}
	m.Apply(2, 1, &e)
	return m
}

func TestReadsAreBoundedByTheirWork(t *testing.T) {
	r := &Replica{machine: crowded(50_000, 5_000)}
	for _, c := range []struct {
		body Body
		most int // that the loop may have to serve in one turn
	}{
		{ReadHistory{Name: "job", Limit: 1_000}, 62},
		{ReadLocks{Limit: 1000}, 65},
		{ReadSessions{Limit: 1000}, 53},
		{ReadLock{Name: "job", Waiters: 16_384}, 64},
		{ReadLock{Name: "job", Holders: 1_000}, 300},
		{ReadLocks{Limit: 100}, 150},
		{Revoke{Name: "job"}, 2},
	} {
		var s rounds
		n := 0
		for n <= c.most && s.hold(held{Request: Request{Body: c.body}, cost: r.cost(c.body)}, true) {
			n++
		}
		if n < c.most/2 || n > c.most {
			t.Errorf("%T: %d were held at a time, at most %d may be", c.body, n, c.most)
		}
		s.release(s.waiting)
		if s.work != 0 || s.held != 0 {
			t.Errorf("%T: %d units of %d requests are left", c.body, s.work, s.held)
		}
	}
}
