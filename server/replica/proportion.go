package replica

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// How far a message may be ahead of this node. Honest nodes stay far below: a cluster that elected
// a leader every second would take a century to reach farTerm. A larger value from a broken or
// dishonest member would be written to disk and believed by all, and at the end of the number range
// no node could ever be elected again. Above highTerm only farAtTheEnd is allowed, so that nobody
// can bring the cluster near the end within a lifetime, while an election still works from any
// term.
const (
	farTerm     = 1 << 32
	highTerm    = 1 << 62
	farAtTheEnd = 1 << 10
	// lastTerm is beyond anything that messages can bring a node to: a log with a later term cannot
	// continue.
	lastTerm = 1 << 63
	// farIndex is the same for log positions, of which a new member has none.
	farIndex = 1 << 48
)

// OutOfProportion returns why a peer's message must not reach a node with this term and this last
// log index, or "".
func OutOfProportion(m *raftpb.Message, term, last uint64) string {
	far := uint64(farTerm)
	if term >= highTerm {
		far = farAtTheEnd
	}
	if m.GetTerm() > term && m.GetTerm()-term > far {
		return fmt.Sprintf("term %d, but this node has %d", m.GetTerm(), term)
	}
	if m.GetLogTerm() > m.GetTerm() {
		return fmt.Sprintf("an entry of term %d in term %d", m.GetLogTerm(), m.GetTerm())
	}
	meta := m.GetSnapshot().GetMetadata()
	for _, index := range []uint64{m.GetIndex(), m.GetCommit(), m.GetRejectHint(), meta.GetIndex()} {
		if index > last && index-last > farIndex {
			return fmt.Sprintf("index %d, but this node has %d", index, last)
		}
	}
	if meta.GetTerm() > m.GetTerm() {
		return fmt.Sprintf("a snapshot of term %d in term %d", meta.GetTerm(), m.GetTerm())
	}
	return entriesOutOfOrder(m)
}

// entriesOutOfOrder returns why the entries of a message cannot be a leader's, or "". Once in a
// log, they would stay there.
func entriesOutOfOrder(m *raftpb.Message) string {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		index++
		if e.GetIndex() != index || e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
			return fmt.Sprintf("entry %d of term %d after entry %d of term %d, in term %d", e.GetIndex(), e.GetTerm(), index-1, term, m.GetTerm())
		}
		term = e.GetTerm()
	}
	return ""
}

// proportionate reports whether a peer's message may reach Raft; otherwise it is counted. A broken
// member sends many of them: they are logged less and less often.
func (r *Replica) proportionate(m *raftpb.Message) bool {
	last, _ := r.disk.LastIndex() // never returns an error
	why := OutOfProportion(m, r.term, last)
	if why == "" {
		return true
	}
	r.disproportionate++
	if n := r.disproportionate; n&(n-1) == 0 {
		r.log.Error("dropping messages of a peer with implausible terms or indexes: it is broken, or is not a node; stop it and replace it",
			"peer", fmt.Sprintf("%016x", m.GetFrom()), "type", m.GetType(), "why", why, "dropped", n)
	}
	return false
}
