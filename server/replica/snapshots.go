package replica

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
)

const (
	// partSize is the approximate size of a part: one every 5 ms makes 13 MB/s and takes less than a
	// millisecond of a turn. A single chunk of the machine may be larger; the next part is then due as
	// much later.
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
	*core
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
// to be replaced. It returns what is to be said about them; otherwise what has been said before.
func (s *snapshots) forgetSecrets(said Forget) Forget {
	counts := s.machine.Counts()
	switch {
	case s.index == s.applied: // a leader's snapshot has replaced everything
		return ForgetNow
	case counts.Sessions > 0 || counts.Endings > 0:
		s.owed, s.owedFrom = keptSnapshots, s.applied
		return ForgetLater
	}
	return said
}

// want asks for a snapshot that includes an entry, or everything applied so far.
func (s *snapshots) want(index uint64) {
	if index == 0 || max(s.index, s.meta.GetIndex()) < index {
		s.wanted = true
	}
}

// owes reports whether one is due for forgetSecrets.
func (s *snapshots) owes() bool { return s.owed > 0 && s.now >= s.retry }

// lacksEntry reports whether nothing has been applied since the first of the owed snapshots: the
// second needs an entry.
func (s *snapshots) lacksEntry() bool {
	return s.owes() && s.meta == nil && s.applied == s.index
}

// payOff counts a durable snapshot, and reports whether it was the last that was owed.
func (s *snapshots) payOff(index uint64) bool {
	if s.owed == 0 || index < s.owedFrom {
		return false
	}
	s.owed--
	return s.owed == 0
}

// failed abandons the snapshot in progress. The next is due after as much log again.
func (s *snapshots) failed(index uint64) {
	if s.meta.GetIndex() == index {
		s.machine.AbortCapture()
		s.capture, s.meta = nil, nil
	}
}

// capturePart starts a snapshot when enough log has been applied, or hands out the next part of the
// one in progress. It hands out one part a turn, and no faster than the disk is meant to take them:
// grants go on meanwhile.
func (s *snapshots) capturePart(installing bool) *SnapshotPart {
	if s.meta == nil && !installing && s.due() {
		s.start()
	}
	if s.capture == nil || s.now < s.next {
		return nil
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
	s.first, s.next = false, s.now+lead.Time(max(1, len(part.Chunk)/partSize))*lead.Time(s.cfg.SnapshotPace)
	return part
}

// due reports whether enough log has been applied, or a snapshot is wanted that does not exist yet.
func (s *snapshots) due() bool {
	if s.applied == s.index && s.disk.sendable(s.index) {
		s.wanted, s.disk.asked = false, false // the newest one has everything
	}
	if s.owes() && s.applied > s.index {
		return true
	}
	if (s.wanted || s.disk.asked) && s.applied >= firstIndex && s.now >= s.retry {
		return true
	}
	return s.passedMark(max(s.began, s.index)) || s.grown >= s.fewer(s.cfg.SnapshotBytes)
}

// passedMark reports whether a mark of this node lies between the entry of its last snapshot, if
// that is not too close, and the last applied entry. Marks are SnapshotEntries apart, and those of
// the voters are spread evenly: all apply the same log, and with the same marks all disks would be
// busy at the same moments.
func (s *snapshots) passedMark(last uint64) bool {
	before, all := s.rank()
	every := s.cfg.SnapshotEntries
	shift := every * before / all
	return s.applied-last > every/2 && (s.applied+shift)/every != (last+shift)/every
}

// fewer returns whole for the first voter and less for the others, down to half of it, for the same
// reason.
func (s *snapshots) fewer(whole uint64) uint64 {
	before, all := s.rank()
	return whole - whole/(2*all)*before
}

func (s *snapshots) start() {
	term, err := s.disk.Term(s.applied)
	if err != nil {
		panic(fmt.Sprintf("replica: term of applied entry %d: %v", s.applied, err))
	}
	s.machine.AbortCapture()
	s.meta = &raftpb.SnapshotMetadata{Index: new(s.applied), Term: new(term), ConfState: s.confState}
	s.capture, s.first, s.next = s.machine.StartCapture(), true, s.now
	s.began, s.grown, s.wanted, s.retry = s.applied, 0, false, s.now+retryAfter
}

// tailStart returns the last index that the log in memory may forget: about SnapshotTail bytes
// before the snapshot are kept, and up to SnapshotLag bytes of the log after needed, which a
// follower that is catching up still needs.
func (s *snapshots) tailStart(index, needed uint64) uint64 {
	first, _ := s.disk.FirstIndex() // never returns an error
	if first > index {
		return index
	}
	entries, err := s.disk.Entries(first, index+1, raftNoLimit)
	if err != nil {
		panic(fmt.Sprintf("replica: entries %d to %d: %v", first, index, err))
	}
	var size, cost uint64
	for _, e := range slices.Backward(entries) {
		size += uint64(len(e.GetData()))
		cost += uint64(len(e.GetData())) + entryCost
		if size > s.cfg.SnapshotTail && (e.GetIndex() <= needed || cost > s.cfg.SnapshotLag) {
			return e.GetIndex()
		}
	}
	return first - 1
}

const raftNoLimit = 1<<64 - 1

// restart forgets all work after a leader's snapshot at index has been installed. It reports
// whether snapshots were owed: that one has replaced what was to be forgotten.
func (s *snapshots) restart(index uint64) (owed bool) {
	owed = s.owed > 0
	*s = snapshots{core: s.core, index: index, began: index}
	return owed
}
