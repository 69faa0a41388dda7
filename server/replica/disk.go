package replica

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
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

// muted reports whether this replica leads with a disk that does not answer.
func (r *Replica) muted() bool {
	return r.role == Leader && r.diskBusy() > r.cfg.StallMute
}

// watchDisk acts on a write that takes too long. With asynchronous writes
// Raft itself would lead for ever with a dead disk: its heartbeats do not need one.
func (r *Replica) watchDisk() {
	busy := r.diskBusy()
	if busy <= r.cfg.StallTransfer {
		r.stalled = false
		return
	}
	if r.role == Leader && !r.stalled {
		r.stalled = true
		r.log.Warn("disk stalled: giving leadership away", "busy", busy)
		r.handOver(raft.None)
	}
	if busy > r.cfg.StallExit {
		r.out.Exit = fmt.Sprintf("a write to the log has not finished for %v", busy)
	}
}

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
