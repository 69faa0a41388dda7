package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A network carries messages between the machines of a run: nodes first, then clients, numbered
// consecutively. Messages between nodes may be lost, duplicated, delayed and reordered.
type network struct {
	w   *world
	rnd random

	latency time.Duration // the mean of the delay added to fastest
	loss    float64
	double  float64
	reorder bool
	cut     [][]int // [from][to]: number of faults that cut the link now
	last    [][]time.Duration
}

// fastest is the delay of the quickest message.
const fastest = 100 * time.Microsecond

func newNetwork(w *world, machines int) *network {
	n := &network{w: w, rnd: stream(w.opts.Seed, "network"), latency: 300 * time.Microsecond}
	for range machines {
		n.cut = append(n.cut, make([]int, machines))
		n.last = append(n.last, make([]time.Duration, machines))
	}
	return n
}

// open reports whether bytes get from one machine to another.
func (n *network) open(from, to int) bool { return n.cut[from][to] == 0 }

// delay draws how long one message takes.
func (n *network) delay() time.Duration { return fastest + n.rnd.about(n.latency) }

// send carries a raft message. Without reordering, messages of one link keep their order.
func (n *network) send(from, to *node, m *raftpb.Message) {
	if !n.open(from.index, to.index) || n.rnd.chance(n.loss) {
		n.w.count(messageLost)
		if n.rnd.chance(0.1) {
			n.w.after(n.delay(), func() { from.unreachable(to.id) })
		}
		return
	}
	copies := 1
	if n.rnd.chance(n.double) {
		n.w.count(messageDoubled)
		copies = 2
	}
	for i := range copies {
		at := n.w.now + n.delay()
		if !n.reorder {
			at = max(at, n.last[from.index][to.index])
			n.last[from.index][to.index] = at
		}
		n.w.at(at, func() {
			if !n.open(from.index, to.index) {
				n.w.count(messageLost)
				return
			}
			n.w.mix(uint64(m.GetType()), m.GetTerm(), m.GetIndex()<<8|uint64(from.index<<4|to.index))
			to.message(from, copyOf(m, i))
		})
	}
}

// copyOf gives each copy of a duplicated message a head of its own: raft may write to the head of a
// message that it is given.
func copyOf(m *raftpb.Message, i int) *raftpb.Message {
	if i == 0 {
		return m
	}
	return &raftpb.Message{
		Type: m.Type, To: m.To, From: m.From, Term: m.Term, LogTerm: m.LogTerm, Index: m.Index,
		Entries: m.Entries, Commit: m.Commit, Vote: m.Vote, Snapshot: m.Snapshot,
		Reject: m.Reject, RejectHint: m.RejectHint, Context: m.Context, Responses: m.Responses,
	}
}

// sever adds d to the number of faults that cut the link in one direction.
func (n *network) sever(from, to, d int) { n.cut[from][to] += d }
