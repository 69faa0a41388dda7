package replica

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
)

func refusal(a lead.Answer) lead.Refusal {
	if r, ok := a.(lead.Refused); ok {
		return r.Reason
	}
	return 255
}

func TestAFollowerAnswersNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	k := c.open(c.lead(1), ttl)
	k.host = c.host(2)
	for _, b := range []lead.Body{
		lead.KeepAlive{Number: 1}, k.acquireBody(spec("job")), lead.Release{}, lead.Cancel{}, lead.Close{}, lead.Attach{Secret: k.secret, Number: 9},
		lead.Open{TTL: ttl}, lead.ReadLock{Name: "job", Holders: 100}, lead.ReadLocks{}, lead.ReadSessions{}, lead.ReadHistory{}, lead.Revoke{Name: "job"},
	} {
		if a := k.call(b); refusal(a) != lead.NotLeader {
			t.Errorf("%T on a follower was answered %+v", b, a)
		}
	}
}

func TestALeaderThatIsCutOffAnswersNothingThatNeedsARound(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.lead(1)
	k := c.open(h, ttl)
	unknown := &client{c: c, host: h, stream: c.newStream(), id: command.SessionID{1}}
	far := k.acquireBody(spec("far"))
	far.Claim.Seq = 1 << 40
	c.isolate(1)
	tags := []uint64{
		k.send(lead.KeepAlive{Number: 1}), k.send(lead.ReadLock{Name: "job", Holders: 100}),
		unknown.send(lead.Attach{Number: 1}), unknown.send(lead.Close{}), k.send(far), k.send(k.acquireBody(spec("job"))),
		c.send(h, lead.Request{Stream: c.newStream(), Session: unknown.id, Secret: &unknown.secret, Body: lead.Close{}}),
		c.send(h, lead.Request{Stream: c.newStream(), Session: unknown.id, Secret: &unknown.secret, Body: lead.KeepAlive{Unary: true}}),
		c.send(h, lead.Request{Stream: c.newStream(), Body: lead.Revoke{Name: "nobody"}}),
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
		if a := c.answer(h, tag); refusal(a) != lead.NotLeader {
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
	k.send(lead.KeepAlive{Number: 7})
	c.run(100 * ms)
	number := old.r.lead.Stats().Rounds
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
		if _, ok := r.Answer.(lead.Kept); ok {
			t.Errorf("a follower renewed a lease: %+v", r)
		}
	}

	// Nor may it count in a later term of the old leader, nor may one of another replica.
	again := c.lead(1)
	again.inputs = append(again.inputs, Asked{lead.Request{Stream: c.newStream(), Tag: 1, Body: lead.ReadLock{Name: "job"}}})
	c.isolate(1)
	c.until(second, "open round", func() bool { return again.r.lead.Stats().Open == 1 })
	number = again.r.lead.Stats().Rounds
	for _, context := range [][]byte{
		roundContext(1, term, number), roundContext(2, again.r.term, number), []byte("short"), nil,
	} {
		again.r.confirm(raft.ReadState{RequestCtx: context})
		if again.r.lead.Stats().Open != 1 {
			t.Errorf("the round %x was taken for number %d of term %d", context, number, again.r.term)
		}
	}
	again.r.confirm(raft.ReadState{RequestCtx: roundContext(1, again.r.term, number)})
	if again.r.lead.Stats().Open != 0 {
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
	read := k.send(lead.ReadLock{Name: "job", Holders: 100})
	c.until(10*ms, "open round", func() bool { return old.r.lead.Stats().Open > 0 })
	old.paused = true
	c.run(5 * ms)
	acks := old.inputs
	old.inputs = nil
	c.leader(1)
	c.run(2 * second)

	later := old.inputs // from other sockets
	old.inputs = nil
	keep := k.send(lead.KeepAlive{Number: 1})
	old.inputs = append(old.inputs, acks...)
	old.paused = false
	c.turn(old)
	answered := func(tag uint64) []lead.Reply { return old.take(func(r lead.Reply) bool { return r.Tag == tag }) }
	if got := answered(read); len(got) != 1 {
		t.Fatalf("the round was not confirmed: the test proves nothing: %+v", got)
	}
	if got := answered(keep); len(got) != 0 {
		t.Errorf("answered %+v, sent 2 s after another leader began to time the lease", got)
	}
	old.inputs = append(later, old.inputs...)
	if a := c.answer(old, keep); refusal(a) != lead.NotLeader {
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
	read, keep := k.send(lead.ReadLock{Name: "job", Holders: 100}), k.send(lead.KeepAlive{Number: 1})
	c.run(200 * ms)
	if len(h.replies) != 0 {
		t.Fatalf("answered %+v from the state before", h.replies)
	}
	h.disk.stuck = false
	if a := c.answer(h, read).(lead.LockRead); len(a.Lock.Holders) != 1 {
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
		tags = append(tags, k.send(lead.KeepAlive{Number: uint64(i)}))
		c.run(50 * ms)
	}
	for _, tag := range tags {
		if a := c.answer(c.host(1), tag); refusal(a) != lead.NotLeader {
			t.Fatalf("a keepalive was answered %+v by a replica that has lost leadership", a)
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
		a := k.call(lead.ReadLock{Name: "job", Holders: 100, Waiters: 1})
		if took := c.now - from; took > 6*ms {
			t.Errorf("a read took %d ms with a network of 1 ms", took/ms)
		}
		if got := a.(lead.LockRead).Lock.Holders; len(got) != 1 || got[0].Claim.Session != k.id {
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
	before := h.r.lead.Stats().Rounds
	for range 300 { // one keepalive a millisecond
		clients[int(c.now/ms)%len(clients)].send(lead.KeepAlive{})
		c.tick()
	}
	if n := h.r.lead.Stats().Rounds - before; n < 8 || n > 13 {
		t.Errorf("%d rounds in 300 ms, want one each 30 ms", n)
	}
	c.run(second) // without requests
	before = h.r.lead.Stats().Rounds
	c.run(second)
	if n := h.r.lead.Stats().Rounds - before; n < 3 || n > 5 {
		t.Errorf("%d rounds in an idle second, want 4", n)
	}
}

func TestAReadSeesWhatWasAnsweredBefore(t *testing.T) {
	c := newCluster(t, 3, nil)
	h := c.leader()
	k := c.open(h, ttl)
	for range 5 {
		got := k.acquire("job")
		k.call(lead.Release{Claim: command.Release{Seq: got.Seq, Token: got.Token}})
		if a := k.call(lead.ReadLock{Name: "job", Holders: 100}).(lead.LockRead); len(a.Lock.Holders) != 0 {
			t.Errorf("a read after a release shows %+v", a.Lock.Holders)
		}
	}
	list := k.call(lead.ReadHistory{Name: "job", Limit: 100}).(lead.HistoryRead)
	if len(list.Events) != 10 || !list.Complete {
		t.Errorf("history has %d events, complete=%v, want 10 in all", len(list.Events), list.Complete)
	}
	k.acquire("a/1")
	k.acquire("b/1")
	if a := k.call(lead.ReadLocks{Prefix: "a/", Limit: 10}).(lead.LocksRead); len(a.Locks) != 1 || a.More {
		t.Errorf("listed %+v", a)
	}
}
