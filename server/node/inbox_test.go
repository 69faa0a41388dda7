package node

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/lead"
)

func requests(n int, body lead.Body) []lead.Request {
	reqs := make([]lead.Request, n)
	for i := range reqs {
		reqs[i].Body = body
	}
	return reqs
}

func TestUnderLoadNewWorkIsRefusedAndTheRestIsNot(t *testing.T) {
	b := newInbox()
	if err := b.submit(requests(maxNew, lead.Acquire{})); err != nil {
		t.Fatal(err)
	}
	for _, body := range []lead.Body{lead.Acquire{}, lead.Open{}, lead.Revoke{}, lead.ReadLock{}, lead.ReadLocks{}, lead.ReadSessions{}, lead.ReadHistory{}} {
		if err := b.submit(requests(1, body)); err != ErrOverloaded {
			t.Errorf("%T: %v", body, err)
		}
	}
	for _, body := range []lead.Body{lead.KeepAlive{}, lead.Release{}, lead.Cancel{}, lead.Close{}, lead.Attach{}} {
		if err := b.submit(requests(1, body)); err != nil {
			t.Errorf("%T: %v", body, err)
		}
	}
	if err := b.submit(requests(maxRequests, lead.KeepAlive{})); err != ErrOverloaded {
		t.Errorf("beyond all bounds: %v", err)
	}
	b.force(lead.Request{Body: lead.Gone{}})
	if got, want := len(b.mu.requests), maxNew+6; got != want {
		t.Errorf("%d requests wait, want %d", got, want)
	}
}

func TestMessagesBeyondTheBoundAreDropped(t *testing.T) {
	b := newInbox()
	b.receive(make([]*raftpb.Message, maxMessages-1))
	b.receive(make([]*raftpb.Message, 5))
	if len(b.mu.inputs) != maxMessages {
		t.Errorf("%d messages wait", len(b.mu.inputs))
	}
	var l load
	b.drain(&l)
	b.receive(make([]*raftpb.Message, 5))
	if len(l.inputs) != maxMessages || len(b.mu.inputs) != 5 {
		t.Errorf("%d drained, %d wait", len(l.inputs), len(b.mu.inputs))
	}
}

func TestATurnTakesABoundedPartAndKeepsTheOrder(t *testing.T) {
	b := newInbox()
	all := requests(2*maxTurn+1, lead.KeepAlive{})
	for i := range all {
		all[i].Tag = uint64(i)
	}
	if err := b.submit(all[:maxTurn+1]); err != nil {
		t.Fatal(err)
	}
	var l load
	next := uint64(0)
	for turn := 0; next < uint64(len(all)); turn++ {
		if turn == 10 {
			t.Fatal("too many turns")
		}
		b.drain(&l)
		if turn == 0 {
			if err := b.submit(all[maxTurn+1:]); err != nil {
				t.Fatal(err)
			}
		}
		part := l.take()
		if len(part) > maxTurn {
			t.Errorf("%d in one turn", len(part))
		}
		for _, r := range part {
			if r.Tag != next {
				t.Fatalf("request %d came where %d belongs", r.Tag, next)
			}
			next++
		}
	}
}

func TestRepliesOfATurnComeAtOnceAndInOrder(t *testing.T) {
	var s streams
	s.init()
	var calls int
	var got []uint64
	a := s.add(func(rs []lead.Reply) {
		calls++
		for _, r := range rs {
			got = append(got, r.Tag)
		}
	})
	b := s.add(func([]lead.Reply) {})
	s.deliver([]lead.Reply{{Stream: a, Tag: 1}, {Stream: b}, {Stream: a, Tag: 2}, {Stream: 999}})
	if calls != 1 || len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Errorf("%d calls, %v", calls, got)
	}
	if !s.remove(a) || s.remove(a) {
		t.Error("removed never or twice")
	}
	s.deliver([]lead.Reply{{Stream: a, Tag: 3}})
	if calls != 1 {
		t.Error("a removed stream got a reply")
	}
}
