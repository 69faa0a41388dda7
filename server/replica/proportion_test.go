package replica

import (
	"math"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func TestWhatIsOutOfAllProportionIsTold(t *testing.T) {
	entry := func(index, term uint64) *raftpb.Entry { return &raftpb.Entry{Index: &index, Term: &term} }
	snapshot := func(index, term uint64) *raftpb.Snapshot {
		return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term}}
	}
	const term, last = 7, 100
	for name, c := range map[string]struct {
		m    *raftpb.Message
		term uint64 // of this node; 0: term
		bad  bool
	}{
		"a heartbeat":                   {m: &raftpb.Message{Term: new(uint64(9)), Commit: new(uint64(90))}},
		"an older term":                 {m: &raftpb.Message{Term: new(uint64(1))}},
		"entries":                       {m: &raftpb.Message{Term: new(uint64(9)), Index: new(uint64(100)), LogTerm: new(uint64(7)), Entries: []*raftpb.Entry{entry(101, 7), entry(102, 9)}}},
		"a new member gets a snapshot":  {m: &raftpb.Message{Term: new(uint64(1 << 20)), Snapshot: snapshot(1<<47, 1<<20)}},
		"as far as it may":              {m: &raftpb.Message{Term: new(uint64(term + farTerm)), Index: new(uint64(last + farIndex))}},
		"elections above the bound":     {m: &raftpb.Message{Term: new(uint64(highTerm + farTerm + 5))}, term: highTerm + farTerm},
		"the last term":                 {m: &raftpb.Message{Term: new(uint64(math.MaxUint64))}, bad: true},
		"a term too far":                {m: &raftpb.Message{Term: new(uint64(term + farTerm + 1))}, bad: true},
		"a jump above the bound":        {m: &raftpb.Message{Term: new(uint64(highTerm + farAtTheEnd + 1))}, term: highTerm, bad: true},
		"an index":                      {m: &raftpb.Message{Term: new(uint64(7)), Index: new(uint64(last + farIndex + 1))}, bad: true},
		"a commit":                      {m: &raftpb.Message{Term: new(uint64(7)), Commit: new(uint64(math.MaxUint64))}, bad: true},
		"a hint":                        {m: &raftpb.Message{Term: new(uint64(7)), RejectHint: new(uint64(math.MaxUint64))}, bad: true},
		"a snapshot's index":            {m: &raftpb.Message{Term: new(uint64(7)), Snapshot: snapshot(1<<62, 7)}, bad: true},
		"a snapshot of a later term":    {m: &raftpb.Message{Term: new(uint64(7)), Snapshot: snapshot(110, 8)}, bad: true},
		"a candidate's later last term": {m: &raftpb.Message{Term: new(uint64(8)), LogTerm: new(uint64(9))}, bad: true},
		"an entry of a later term":      {m: &raftpb.Message{Term: new(uint64(7)), Index: new(uint64(100)), Entries: []*raftpb.Entry{entry(101, math.MaxUint64)}}, bad: true},
		"entries whose terms fall":      {m: &raftpb.Message{Term: new(uint64(7)), Index: new(uint64(100)), Entries: []*raftpb.Entry{entry(101, 7), entry(102, 6)}}, bad: true},
		"entries with a gap":            {m: &raftpb.Message{Term: new(uint64(7)), Index: new(uint64(100)), Entries: []*raftpb.Entry{entry(102, 7)}}, bad: true},
	} {
		own := c.term
		if own == 0 {
			own = term
		}
		if why := OutOfProportion(c.m, own, last); (why != "") != c.bad {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// An acknowledgement without a term is no leader's to count, and a replica that does not lead has
// no term either.
func TestAnAcknowledgementWithoutATermIsNotCounted(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	for _, h := range c.hosts {
		if h != leader {
			h.inputs = append(h.inputs, Message{&raftpb.Message{
				Type: raftpb.MsgAppResp.Enum(), From: new(uint64(leader.id)), To: new(uint64(h.id)), Index: new(uint64(9)),
			}})
		}
	}
	c.run(100 * ms)
	if c.leader() != leader {
		t.Error("the leader changed")
	}
}
