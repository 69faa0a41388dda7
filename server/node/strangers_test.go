package node

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/storage"
	"github.com/lockstep-dev/lockstep/server/transport"
)

func TestANodeThatJoinsEndsByTheProvedWordOfMostAlone(t *testing.T) {
	proved := transport.NotAdmitted(transport.Unwanted, "there is no such member")
	unproved := fmt.Errorf("%w: %w", transport.ErrUnproved, transport.ErrRefused)
	down := errors.New("connection refused")
	for _, c := range []struct {
		answers []error
		end     bool
	}{
		{[]error{proved}, true},
		{[]error{proved, proved, down}, true},
		{[]error{proved, transport.ErrRefused}, true},
		{[]error{proved, down}, false},
		{[]error{proved, unproved, unproved}, false},
		{[]error{unproved}, false},
		{[]error{down, down}, false},
	} {
		if err := mostRefuse(c.answers); (err != nil) != c.end {
			t.Errorf("%v: %v, want an end: %v", c.answers, err, c.end)
		}
	}
}

// One that has the secret and is not a member is let in, because it may be one that the log here
// does not have yet; but nothing about it is kept.
func TestOnlyMembersAreRemembered(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	admit := func(id uint64, name string) {
		t.Helper()
		err := peerHandler{leader.Node}.Admit(transport.Identity{Node: id, Name: name, Instance: [16]byte{7}, Start: 9, Level: command.FeatureLevel}, true)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for range 3 {
		id := rand.Uint64()
		admit(id, "made-up")
		if _, known, err := leader.store.KnownInstance(id); known || err != nil {
			t.Errorf("a node that is no member is remembered: %v", err)
		}
		if last, err := leader.store.KnownStart(id); last != (storage.Start{}) || err != nil {
			t.Errorf("start %v of a node that is no member is remembered: %v", last, err)
		}
	}
	m := c.add("n4")
	c.eventually("the new member is remembered", func() error {
		for _, r := range c.nodes {
			if r.cfg.Name == "n4" {
				continue
			}
			known, _, err := r.store.KnownInstance(m.ID)
			start, err2 := r.store.KnownStart(m.ID)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			if known != c.nodes["n4"].store.InstanceID() || start.Number != 1 {
				return fmt.Errorf("%s knows %v, start %d", r.cfg.Name, known, start.Number)
			}
		}
		return nil
	})
}

// A broken or dishonest member sends what would stop all others forever, if it were believed.
func TestABrokenMemberEndsNobody(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	var liar *running
	for name, r := range c.nodes {
		if name != leader.cfg.Name {
			liar = r
		}
	}
	forged := func(to uint64) []*raftpb.Message {
		return []*raftpb.Message{
			{Type: raftpb.MsgHeartbeat.Enum(), Term: new(uint64(math.MaxUint64))},
			{Type: raftpb.MsgVote.Enum(), Term: new(uint64(math.MaxUint64)), Index: new(uint64(1 << 40))},
			{Type: raftpb.MsgAppResp.Enum(), Term: new(leader.Status().Term), Index: new(uint64(math.MaxUint64))},
			{Type: raftpb.MsgHeartbeat.Enum(), Term: new(leader.Status().Term), Commit: new(uint64(math.MaxUint64))},
		}
	}
	for name, r := range c.nodes {
		if r == liar {
			continue
		}
		to, before := r.Status().ID, r.Status().Disproportionate
		c.eventually(name+" has dropped what was forged", func() error {
			msgs := forged(to)
			for _, m := range msgs {
				m.From, m.To = new(liar.Status().ID), new(to)
			}
			liar.transport.Send(group, msgs)
			if n := r.Status().Disproportionate; n < before+uint64(len(msgs)) {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
	}
	cl := c.connect(c.leader())
	cl.open()
	cl.acquire(1, "still granted")
	for _, name := range []string{"n1", "n2", "n3"} {
		c.stop(name)
		c.start(name)
	}
	if term := c.leader().Status().Term; term > 1<<20 {
		t.Errorf("term %d", term)
	}
}

// A directory whose term was set by a forged message cannot be used. The error says which one, and
// what to do.
func TestALogBeyondTheLastTermSaysWhatToDo(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.leader()
	cfg := storage.Config{Dir: n.cfg.DataDir, FS: n.cfg.FS, ClusterID: n.configured(), NodeID: n.id.Load()}
	c.stop("n1")
	store, err := storage.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := store.Recover(group)
	if err != nil {
		t.Fatal(err)
	}
	poisoned := &raftpb.Message{
		Type: raftpb.MsgStorageAppend.Enum(), Term: new(uint64(math.MaxUint64)), Vote: new(uint64(0)), Commit: new(rec.HardState.GetCommit()),
	}
	if err := errors.Join(store.Append(group, []*raftpb.Message{poisoned}), store.Close()); err != nil {
		t.Fatal(err)
	}
	err = c.start("n1").wait(t)
	delete(c.nodes, "n1")
	for _, word := range []string{cfg.Dir, "term 18446744073709551615", "snapshot restore", "member replace"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("ended with %v, want %q in it", err, word)
		}
	}
}
