package replica

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// diskBusy is the age of the oldest write in flight, without the time in which this process was paused: its
// disk may have been done long since, and nobody was there to see it.
func (r *Replica) diskBusy() time.Duration {
	if len(r.writes.flying) == 0 {
		return 0
	}
	return time.Duration(r.awake - r.writes.flying[0].since)
}

const (
	// outrunBy is how many times as long as a majority of its peers a leader's disk has to take before the leader is left
	// for it. With disks that are slow alike, a write that has to wait for the one before it takes twice as long.
	outrunBy = 4
	// transferEvery lies between two transfers for a slow disk: a leader that has just come by one leaves no sooner either.
	transferEvery = Time(10 * time.Second)
)

// forSlowDisk marks the MsgTimeoutNow of a leader that leaves for its disk.
const forSlowDisk = "slow disk"

// outrun reports whether a majority of the members, this one not counted, made the oldest write in flight durable long
// before: then another leader would be faster, and does not need this disk. When all disks are slow nobody is left:
// the next leader would be as slow, and each change costs an election.
func (r *Replica) outrun() bool {
	if keepLeader || len(r.writes.flying) == 0 {
		return false
	}
	w := &r.writes.flying[0]
	return w.elsewhere != 0 && outrunBy*(w.elsewhere-w.since) < r.awake-w.since
}

// noteElsewhere notes when the writes in flight are committed. Raft commits what a majority has, with or without us.
func (r *Replica) noteElsewhere() {
	for i := range r.writes.flying {
		if w := &r.writes.flying[i]; w.elsewhere == 0 && w.last <= r.committed {
			w.elsewhere = r.awake
		}
	}
}

// muted reports whether this replica leads with a disk that does not answer while those of the others do.
func (r *Replica) muted() bool {
	return r.role == Leader && r.diskBusy() > r.cfg.StallMute && r.outrun()
}

// watchDisk acts on a write that takes too long. With asynchronous writes
// Raft itself would lead for ever with a dead disk: its heartbeats do not need one.
func (r *Replica) watchDisk() {
	r.noteElsewhere()
	busy := r.diskBusy()
	if r.role == Leader && busy > r.cfg.StallTransfer && r.outrun() && r.awake >= r.mayTransfer {
		r.mayTransfer = r.awake + transferEvery
		r.log.Warn("disk stalled: giving leadership away", "busy", busy)
		r.leaving = true
		r.handOver(raft.None)
	}
	if busy > r.cfg.StallExit {
		r.out.Exit, r.out.Stalled = fmt.Sprintf("a write to the log has not finished for %v", busy), true
	}
}

// timeoutNow marks the word to the successor when this leader leaves for its disk.
func (r *Replica) timeoutNow(m *raftpb.Message) {
	if r.leaving {
		m.Context = []byte(forSlowDisk)
	}
	r.leaving = false
	r.out.Messages = append(r.out.Messages, m)
}

// succeed takes note of why leadership comes here.
func (r *Replica) succeed(m *raftpb.Message) {
	if string(m.GetContext()) == forSlowDisk {
		r.mayTransfer, r.zoneAt = r.awake+transferEvery, r.awake+zoneAfterDisk
	}
}

// waitsForDisk reports whether this replica has to wait for its disk before it can win an election or vote in one.
// Then its election timer stands still: with syncs longer than the timeout, it would give each of its candidacies up
// just before the votes are durable. A dead disk ends the process.
func (r *Replica) waitsForDisk() bool { return r.role != Leader && len(r.writes.flying) > 0 }

// handOver starts a transfer of leadership to the member with id to, or to the one with
// the longest log. Raft forwards a follower's wish to the leader, who may be
// healthy: only a leader's own is passed on.
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

// successor is the voter with the longest log, if possible of those heard of since Raft looked last, which it does
// each election timeout; the lowest id among equals.
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
