package replica

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockstep-dev/lockstep/server/lead"
)

// busy returns the age of the oldest write in flight, not counting the time during which this
// process was paused: its disk may have finished long ago with nobody there to notice.
func (s *writes) busy(awake lead.Time) time.Duration {
	if len(s.flying) == 0 {
		return 0
	}
	return time.Duration(awake - s.flying[0].since)
}

const (
	// outrunBy is how many times longer than a majority of its peers a leader's disk must take
	// before leadership moves because of it. With equally slow disks, a write that has to wait for
	// the one before it takes twice as long.
	outrunBy = 4
	// transferEvery is the minimum time between two transfers for a slow disk. It also applies to a
	// leader that has just been elected through one.
	transferEvery = lead.Time(10 * time.Second)
)

// forSlowDisk marks the MsgTimeoutNow of a leader that transfers leadership because of its disk.
const forSlowDisk = "slow disk"

// outrun reports whether a majority of the members, not counting this one, made the oldest write in
// flight durable much earlier: then another leader would be faster, and does not need this disk.
// When all disks are slow, leadership stays: the next leader would be as slow, and each change
// costs an election.
func (s *writes) outrun(awake lead.Time) bool {
	if keepLeader || len(s.flying) == 0 {
		return false
	}
	w := &s.flying[0]
	return w.elsewhere != 0 && outrunBy*(w.elsewhere-w.since) < awake-w.since
}

// noteElsewhere records when the writes in flight are committed. Raft commits what a majority has,
// with or without this replica.
func (s *writes) noteElsewhere(committed uint64, awake lead.Time) {
	for i := range s.flying {
		if w := &s.flying[i]; w.elsewhere == 0 && w.last <= committed {
			w.elsewhere = awake
		}
	}
}

// muted reports whether this replica leads with a disk that does not respond while those of the
// others do.
func (r *Replica) muted() bool {
	return r.role == Leader && r.writes.busy(r.awake) > r.cfg.StallMute && r.writes.outrun(r.awake)
}

// watchDisk acts on a write that takes too long. With asynchronous writes, Raft itself would lead
// forever with a dead disk: its heartbeats do not need one.
func (r *Replica) watchDisk() {
	r.writes.noteElsewhere(r.committed, r.awake)
	busy := r.writes.busy(r.awake)
	if r.role == Leader && busy > r.cfg.StallTransfer && r.writes.outrun(r.awake) && r.awake >= r.mayTransfer {
		r.mayTransfer = r.awake + transferEvery
		r.log.Warn("disk stalled: handing over leadership", "busy", busy)
		r.leaving = true
		r.handOver(raft.None)
	}
	if busy > r.cfg.StallExit {
		r.out.Exit, r.out.Stalled = fmt.Sprintf("a write to the log has not finished for %v", busy), true
	}
}

// timeoutNow marks the message to the successor when this leader transfers leadership because of
// its disk.
func (r *Replica) timeoutNow(m *raftpb.Message) {
	if r.leaving {
		m.Context = []byte(forSlowDisk)
	}
	r.leaving = false
	r.out.Messages = append(r.out.Messages, m)
}

// succeed records why leadership comes to this replica.
func (r *Replica) succeed(m *raftpb.Message) {
	if string(m.GetContext()) == forSlowDisk {
		r.mayTransfer, r.zones.at = r.awake+transferEvery, r.awake+zoneAfterDisk
	}
}

// waitsForDisk reports whether this replica has to wait for its disk before it can win an election
// or vote in one. Its election timer then stands still: with syncs longer than the timeout, it
// would abandon each candidacy just before its vote is durable. A dead disk ends the process.
func (r *Replica) waitsForDisk() bool { return r.role != Leader && len(r.writes.flying) > 0 }

// installing reports whether a leader's snapshot is on its way to the disk. The log in memory has
// already made room for it.
func (s *writes) installing() bool {
	return slices.ContainsFunc(s.flying, func(w write) bool { return w.snapshot != nil })
}

// handOver starts a leadership transfer to the member with id to, or to the one with the longest
// log. Raft forwards a follower's request to the leader, which may be healthy: only a leader's own
// request is passed on.
func (r *Replica) handOver(to uint64) {
	if r.raft.BasicStatus().RaftState != raft.StateLeader {
		return
	}
	if to == raft.None {
		to = r.successor()
	}
	if to != raft.None && to != r.cfg.ID {
		r.raft.TransferLeader(to)
	}
}

// successor returns the voter with the longest log, preferring voters heard from since Raft last
// checked, which it does every election timeout. Among equals it returns the lowest id.
func (r *Replica) successor() uint64 {
	var best, match uint64
	var active bool
	r.raft.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id == r.cfg.ID || typ == raft.ProgressTypeLearner {
			return
		}
		better := best == raft.None || pr.RecentActive && !active
		if pr.RecentActive == active {
			better = better || pr.Match > match || pr.Match == match && id < best
		}
		if better {
			best, match, active = id, pr.Match, pr.RecentActive
		}
	})
	return best
}
