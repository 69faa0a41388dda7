package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// A snapshot is a file with a state of the machine.
type snapshot struct {
	meta *raftpb.SnapshotMetadata
	data []byte // nil in the first one, which is the empty machine
}

// A disk holds what one node wrote. It survives the crashes of its node, except what was pending: a
// prefix of that survives.
type disk struct {
	hard    *raftpb.HardState
	snap    snapshot
	entries []*raftpb.Entry // durable, without gap; some may be older than snap

	pending  []*raftpb.Message   // appends that are not durable, oldest first
	syncing  int                 // how many of them the sync in progress covers
	received map[uint64]snapshot // snapshot files sent by a peer, by index
	building snapshot            // written piece by piece, not durable
}

// firstIndex is the index of the synthetic snapshot that every node starts from.
const firstIndex = 1

func newDisk(voters []uint64) *disk {
	return &disk{
		snap: snapshot{meta: &raftpb.SnapshotMetadata{
			Index: new(uint64(firstIndex)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: voters},
		}},
		received: map[uint64]snapshot{},
	}
}

// synced makes the first n pending appends durable.
func (d *disk) synced(n int) {
	for _, m := range d.pending[:n] {
		d.write(m)
	}
	d.pending = slices.Clone(d.pending[n:])
}

// write makes one append durable, in the order of a real disk: first the end of the old log is
// truncated, then the entries and the hard state are written.
func (d *disk) write(m *raftpb.Message) {
	if s := m.GetSnapshot(); s.GetMetadata().GetIndex() > 0 {
		file, ok := d.received[s.GetMetadata().GetIndex()]
		if !ok {
			panic(fmt.Sprintf("sim: snapshot %d is in the log without its file", s.GetMetadata().GetIndex()))
		}
		d.snap, d.entries = file, nil
		maps.DeleteFunc(d.received, func(index uint64, _ snapshot) bool { return index <= file.meta.GetIndex() })
	}
	if es := m.GetEntries(); len(es) > 0 {
		d.cut(es[0].GetIndex())
		d.entries = append(d.entries, es...)
	}
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		d.hard = &raftpb.HardState{Term: new(m.GetTerm()), Vote: new(m.GetVote()), Commit: new(m.GetCommit())}
	}
}

// cut removes the entries from index on.
func (d *disk) cut(index uint64) {
	last := d.snap.meta.GetIndex()
	if n := len(d.entries); n > 0 {
		last = d.entries[n-1].GetIndex()
	}
	if index > last+1 {
		panic(fmt.Sprintf("sim: append at %d leaves a gap behind %d", index, last))
	}
	i := slices.IndexFunc(d.entries, func(e *raftpb.Entry) bool { return e.GetIndex() >= index })
	if i >= 0 {
		d.entries = slices.Clone(d.entries[:i])
	}
}

// compact removes entries up to index, which a durable snapshot covers.
func (d *disk) compact(index uint64) {
	if index > d.snap.meta.GetIndex() {
		panic(fmt.Sprintf("sim: compact to %d beyond the snapshot %d", index, d.snap.meta.GetIndex()))
	}
	i := slices.IndexFunc(d.entries, func(e *raftpb.Entry) bool { return e.GetIndex() > index })
	if i < 0 {
		i = len(d.entries)
	}
	d.entries = slices.Clone(d.entries[i:])
}

// build takes a part of a snapshot that the node makes of its own state.
func (d *disk) build(p *replica.SnapshotPart) {
	if p.First {
		d.building = snapshot{meta: p.Metadata}
	}
	if d.building.meta.GetIndex() != p.Metadata.GetIndex() {
		panic(fmt.Sprintf("sim: part of snapshot %d while %d is written", p.Metadata.GetIndex(), d.building.meta.GetIndex()))
	}
	d.building.data = append(d.building.data, p.Chunk...)
}

// crash loses what was pending, except the first keep appends.
func (d *disk) crash(keep int) {
	d.synced(min(keep, len(d.pending)))
	d.pending, d.syncing = nil, 0
	d.building = snapshot{}
	clear(d.received)
}

// recover reads what a restarting node finds.
func (d *disk) recover() (replica.Recovered, error) {
	m := machine.New()
	if d.snap.data != nil {
		var err error
		if m, err = machine.Restore(bytes.NewReader(d.snap.data)); err != nil {
			return replica.Recovered{}, err
		}
	}
	return replica.Recovered{
		HardState: d.hard,
		Snapshot:  d.snap.meta,
		Entries:   slices.Clone(d.entries),
		Machine:   m,
	}, nil
}
