package replica

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

const (
	// partSize is the approximate size of a part: one every 5 ms makes 13 MB/s and takes less than
	// a millisecond of a turn. A single chunk of the machine may be larger; the next part is then due as much later.
	partSize = 64 << 10
	// maxSteps bounds the chunks in a part of a small state.
	maxSteps = 32
	// retryAfter is the minimum time between two starts of requested snapshots, so that a disk on
	// which they fail is not kept busy.
	retryAfter = lead.Time(time.Second)
	// entryCost is about what an entry takes in memory in addition to its data.
	entryCost = 128
	// heardFor is how long after its last message a follower still counts as catching up.
	heardFor = lead.Time(10 * time.Second)
)

// snapshots is the work on snapshots. One is made at a time.
type snapshots struct {
	index   uint64 // of the last durable one
	grown   uint64 // bytes of log applied since the last one was started
	began   uint64 // applied index when the last one was started
	capture *machine.Capture
	meta    *raftpb.SnapshotMetadata // of the one in progress, until it is durable
	first   bool
	wanted  bool      // one of everything applied, as soon as none is in progress
	next    lead.Time // when the next part is due
	retry   lead.Time // earliest time at which a requested one may be started

	// owed is how many snapshots of an entry from owedFrom on must become durable before the disk
	// is free of secrets.
	owed     int
	owedFrom uint64
}

// keptSnapshots is how many snapshots the disk keeps, with the log from the older one on.
const keptSnapshots = 2

// forgetSecrets causes all snapshots and log that were written before secrets were stored as hashes
// to be replaced.
func (r *Replica) forgetSecrets() {
	counts := r.machine.Counts()
	switch {
	case r.snaps.index == r.applied: // a leader's snapshot has replaced everything
		r.out.Forget = ForgetNow
	case counts.Sessions > 0 || counts.Endings > 0:
		r.snaps.owed, r.snaps.owedFrom, r.out.Forget = keptSnapshots, r.applied, ForgetLater
	}
}

func (r *Replica) wantSnapshot(index uint64) {
	s := &r.snaps
	if index == 0 || max(s.index, s.meta.GetIndex()) < index {
		s.wanted = true
	}
}

// owesSnapshot reports whether one is due for [Replica.forgetSecrets].
func (r *Replica) owesSnapshot() bool { return r.snaps.owed > 0 && r.now >= r.snaps.retry }

// lacksEntry reports whether nothing has been applied since the first of the owed snapshots: the
// second needs an entry.
func (r *Replica) lacksEntry() bool {
	return r.owesSnapshot() && r.snaps.meta == nil && r.applied == r.snaps.index
}

// payOff counts a durable snapshot.
func (r *Replica) payOff(index uint64) {
	if s := &r.snaps; s.owed > 0 && index >= s.owedFrom {
		if s.owed--; s.owed == 0 {
			r.out.Forget = ForgetNow
		}
	}
}

// snapshotFailed abandons the snapshot in progress. The next is due after as much log again.
func (r *Replica) snapshotFailed(index uint64) {
	if r.snaps.meta.GetIndex() == index {
		r.machine.AbortCapture()
		r.snaps.capture, r.snaps.meta = nil, nil
	}
}

// captureOn starts a snapshot when enough log has been applied, or hands out the next part of the
// one in progress. It hands out one part a turn, and no faster than the disk is meant to take them:
// grants go on meanwhile.
func (r *Replica) captureOn() {
	s := &r.snaps
	if s.meta == nil && !r.installing() && r.dueSnapshot() {
		r.startCapture()
	}
	if s.capture == nil || r.now < s.next {
		return
	}
	part := &SnapshotPart{Metadata: s.meta, First: s.first}
	for range maxSteps {
		chunk, last := s.capture.Next()
		if part.Last = last; part.Chunk == nil {
			part.Chunk = chunk // a large one is not copied
		} else {
			part.Chunk = append(part.Chunk, chunk...)
		}
		if last || len(part.Chunk) >= partSize {
			break
		}
	}
	if part.Last {
		s.capture = nil
	}
	r.out.Snapshot = part
	s.first, s.next = false, r.now+lead.Time(max(1, len(part.Chunk)/partSize))*lead.Time(r.cfg.SnapshotPace)
}

// dueSnapshot reports whether enough log has been applied, or a snapshot is wanted that does not
// exist yet.
func (r *Replica) dueSnapshot() bool {
	s := &r.snaps
	if r.applied == s.index && r.disk.sendable(s.index) {
		s.wanted, r.disk.asked = false, false // the newest one has everything
	}
	if r.owesSnapshot() && r.applied > s.index {
		return true
	}
	if (s.wanted || r.disk.asked) && r.applied >= firstIndex && r.now >= s.retry {
		return true
	}
	return r.passedMark(max(s.began, s.index)) || s.grown >= r.fewer(r.cfg.SnapshotBytes)
}

// passedMark reports whether a mark of this node lies between the entry of its last snapshot, if
// that is not too close, and the last applied entry. Marks are SnapshotEntries apart, and those of
// the voters are spread evenly: all apply the same log, and with the same marks all disks would be
// busy at the same moments.
func (r *Replica) passedMark(last uint64) bool {
	before, all := r.rank()
	every := r.cfg.SnapshotEntries
	shift := every * before / all
	return r.applied-last > every/2 && (r.applied+shift)/every != (last+shift)/every
}

// fewer returns whole for the first voter and less for the others, down to half of it, for the same
// reason.
func (r *Replica) fewer(whole uint64) uint64 {
	before, all := r.rank()
	return whole - whole/(2*all)*before
}

// rank returns the number of voters, at least one, and how many of them come before this one.
func (r *Replica) rank() (before, all uint64) {
	for _, id := range r.confState.GetVoters() {
		all++
		if id < r.cfg.ID {
			before++
		}
	}
	return before, max(1, all)
}

// installing reports whether a leader's snapshot is on its way to the disk. The log in memory has
// already made room for it.
func (r *Replica) installing() bool {
	return slices.ContainsFunc(r.writes.flying, func(w write) bool { return w.snapshot != nil })
}

func (r *Replica) startCapture() {
	term, err := r.disk.Term(r.applied)
	if err != nil {
		panic(fmt.Sprintf("replica: term of applied entry %d: %v", r.applied, err))
	}
	s := &r.snaps
	r.machine.AbortCapture()
	s.meta = &raftpb.SnapshotMetadata{Index: new(r.applied), Term: new(term), ConfState: r.confState}
	s.capture, s.first, s.next = r.machine.StartCapture(), true, r.now
	s.began, s.grown, s.wanted, s.retry = r.applied, 0, false, r.now+retryAfter
}

// snapshotWritten records a durable snapshot: the log before it is no longer needed, except for a
// tail in memory for followers that lag.
func (r *Replica) snapshotWritten(index uint64) {
	s := &r.snaps
	if s.meta.GetIndex() != index {
		return // abandoned, or overtaken by one that a leader sent
	}
	meta := s.meta
	s.meta, s.capture, s.index = nil, nil, index
	r.payOff(index)
	r.disk.asked, r.disk.lost = false, 0 // if yet another one is needed, it is asked for again
	_, err := r.disk.CreateSnapshot(index, meta.GetConfState(), nil)
	if errors.Is(err, raft.ErrSnapOutOfDate) {
		return
	}
	if err != nil {
		panic(fmt.Sprintf("replica: snapshot %d: %v", index, err))
	}
	if err := r.disk.Compact(r.tailStart(index)); err != nil && !errors.Is(err, raft.ErrCompacted) {
		panic(fmt.Sprintf("replica: compacting to %d: %v", index, err))
	}
	r.out.CompactTo = index
}

// tailStart returns the last index that the log in memory may forget: about SnapshotTail bytes
// before the snapshot are kept, and up to SnapshotLag bytes of what a follower that is catching up
// still needs.
func (r *Replica) tailStart(index uint64) uint64 {
	first, _ := r.disk.FirstIndex() // never returns an error
	if first > index {
		return index
	}
	entries, err := r.disk.Entries(first, index+1, raftNoLimit)
	if err != nil {
		panic(fmt.Sprintf("replica: entries %d to %d: %v", first, index, err))
	}
	needed := r.neededAfter()
	var size, cost uint64
	for _, e := range slices.Backward(entries) {
		size += uint64(len(e.GetData()))
		cost += uint64(len(e.GetData())) + entryCost
		if size > r.cfg.SnapshotTail && (e.GetIndex() <= needed || cost > r.cfg.SnapshotLag) {
			return e.GetIndex()
		}
	}
	return first - 1
}

// neededAfter returns the index after which a recently heard follower still needs the log: it has
// everything up to there, or gets it with the snapshot on its way. Without this, a follower whose
// snapshot takes longer than the time between two snapshots would find the log gone each time.
func (r *Replica) neededAfter() uint64 {
	after := uint64(math.MaxUint64)
	if r.role != Leader {
		return after
	}
	r.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if heard, ok := r.members.heard[id]; ok && r.now-heard <= heardFor {
			after = min(after, max(pr.Match, pr.PendingSnapshot))
		}
	})
	return after
}

const raftNoLimit = 1<<64 - 1

// takeIncoming returns the state of a snapshot that Raft accepted, and forgets older ones.
func (r *Replica) takeIncoming(index uint64) *machine.Machine {
	for _, in := range r.incoming {
		if in.Message.GetSnapshot().GetMetadata().GetIndex() == index {
			r.incoming = nil
			return in.Machine
		}
	}
	panic(fmt.Sprintf("replica: Raft accepted snapshot %d, whose state never came", index))
}

// install replaces the present state with the state of a snapshot that is now durable.
func (r *Replica) install(meta *raftpb.SnapshotMetadata, m *machine.Machine) {
	if meta.GetIndex() <= r.applied {
		panic(fmt.Sprintf("replica: snapshot %d to install after entry %d", meta.GetIndex(), r.applied))
	}
	r.log.Info("snapshot installed", "index", meta.GetIndex(), "previous", r.applied)
	r.machine.AbortCapture()
	before := r.machine.Limits().FeatureLevel
	r.machine, r.applied, r.confState = m, meta.GetIndex(), meta.GetConfState()
	r.lead.Installed(m, r.applied)
	owed := r.snaps.owed > 0
	r.snaps = snapshots{index: meta.GetIndex(), began: meta.GetIndex()}
	r.leaveIfRemoved()
	if owed {
		r.out.Forget = ForgetNow
	}
	r.risen(before)
}
