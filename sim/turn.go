package sim

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// A stage is a moment within a turn at which a node can crash.
type stage int

const (
	never        stage = iota
	beforeAll          // the turn was taken and none of it carried out
	afterAppends       // writes were handed to the disk, nothing was sent
	afterSends         // messages were sent, clients received nothing
	afterReplies
	afterSync // the disk is done, the replica does not know
	inSnapshot
	stages
)

func (s stage) String() string {
	return [...]string{"never", "before a turn's effects", "after its appends", "after its sends", "after its replies", "after a sync", "in a snapshot"}[s]
}

// takeTurn runs the replica once and carries out what it wants.
func (n *node) takeTurn() {
	n.turnAt = -1
	if n.paused || n.stuck {
		return // resume pokes
	}
	out := n.rep.Turn(lead.Time(n.local()), n.clock.wall(n.w.now))
	if out.Exit != "" {
		n.w.count(nodeExited)
		n.die(out.Exit)
		return
	}
	for i := range out.Applied {
		n.w.applied(n, &out.Applied[i])
	}
	if n.w.failed() || n.reached(beforeAll) {
		return
	}
	n.append(out.Appends)
	if n.reached(afterAppends) {
		return
	}
	for _, m := range out.Messages {
		n.send(m)
	}
	if n.reached(afterSends) {
		return
	}
	n.reply(out.Replies)
	if s := n.rep.Status(); s.Role == replica.Leader {
		n.led = s.Term
	}
	if n.reached(afterReplies) {
		return
	}
	n.carrySnapshot(&out)
	if n.up() {
		n.wake(out.Wake)
	}
}

func (n *node) wake(at lead.Time) {
	due := n.clock.when(time.Duration(at))
	if due < n.w.now+time.Hour {
		n.poke(max(0, due-n.w.now))
	}
}

// reached crashes the node if its crash was armed for this stage, and reports whether it did.
func (n *node) reached(s stage) bool {
	if n.crashAt != s {
		return !n.up()
	}
	n.die("crash " + s.String())
	return true
}

// die crashes the node with an arbitrary prefix of its pending writes, and schedules its restart.
func (n *node) die(why string) {
	keep := pick(n.io, 0, len(n.disk.pending), n.io.IntN(len(n.disk.pending)+1))
	n.crash(keep, why)
	n.w.after(n.w.plan.downTime(n.io), n.boot)
}

func (n *node) reply(replies []lead.Reply) {
	for _, r := range replies {
		if c := n.streams[r.Stream]; c != nil {
			c.fromServer(r)
		} else if f := n.unary[r.Stream]; f != nil {
			if _, ok := r.Answer.(lead.Kept); ok {
				n.w.book.SetNow(n.w.now)
				n.w.book.Confirmed(n.led, r.Session)
			}
			f(r)
		}
	}
}

func (n *node) send(m *raftpb.Message) {
	to := n.w.byID[m.GetTo()]
	if to == nil {
		return
	}
	if m.GetType() != raftpb.MsgSnap {
		n.w.net.send(n, to, m)
		return
	}
	life := n.life
	sent := replica.SnapshotSent{To: to.id}
	done := func(ok bool) {
		sent.OK = ok
		n.w.after(n.w.net.delay(), func() {
			if n.life == life {
				n.deliver(to.index, func() { n.rep.Step(sent) })
			}
		})
	}
	file, index := n.disk.snap, m.GetSnapshot().GetMetadata().GetIndex()
	if file.meta.GetIndex() != index || file.data == nil {
		n.w.note("node %d has no snapshot %d to send", n.index, index)
		sent.Unreadable = index
		done(false)
		return
	}
	if !n.w.net.open(n.index, to.index) {
		done(false)
		return
	}
	n.w.count(snapshotSent)
	n.w.after(n.io.between(n.w.plan.streamLeast, n.w.plan.streamTime), func() {
		if n.life != life || !n.w.net.open(n.index, to.index) || !n.w.net.open(to.index, n.index) {
			done(false)
			return
		}
		to.snapshot(n, m, file, done)
	})
}

// append queues writes for the disk; one sync takes everything queued during the previous one.
func (n *node) append(ms []*raftpb.Message) {
	n.disk.pending = append(n.disk.pending, ms...)
	n.sync()
}

func (n *node) sync() {
	if n.disk.syncing > 0 || len(n.disk.pending) == 0 {
		return
	}
	n.disk.syncing = len(n.disk.pending)
	n.syncEnds(n.life, n.w.now+200*time.Microsecond+n.syncTime())
}

// syncTime draws how long a sync takes.
func (n *node) syncTime() time.Duration {
	if n.w.plan.steadySync {
		return n.syncMean
	}
	return n.io.about(n.syncMean)
}

// syncEnds makes the batch in progress durable at the time at, or when the disk works again.
func (n *node) syncEnds(life int, at time.Duration) {
	n.w.at(at, func() {
		if n.life != life || !n.up() {
			return
		}
		if n.diskStuck > n.w.now {
			n.syncEnds(life, n.diskStuck)
			return
		}
		count := n.disk.syncing
		n.disk.synced(count)
		n.disk.syncing = 0
		if n.reached(afterSync) {
			return
		}
		n.deliver(n.index, func() { n.rep.Step(replica.Persisted{Appends: count}) })
		n.sync()
	})
}

// carrySnapshot writes a part of the node's own snapshot and removes log that a snapshot covers.
func (n *node) carrySnapshot(out *replica.Output) {
	if out.CompactTo > 0 {
		n.disk.compact(out.CompactTo)
	}
	p := out.Snapshot
	if p == nil {
		return
	}
	n.disk.build(p)
	if n.reached(inSnapshot) || !p.Last {
		return
	}
	life, built := n.life, n.disk.building
	built.data = slices.Clip(built.data)
	n.w.after(n.io.between(time.Millisecond, 10*n.syncMean+2*time.Millisecond), func() {
		if n.life != life || !n.up() {
			return
		}
		index := built.meta.GetIndex()
		if index > n.disk.snap.meta.GetIndex() {
			n.disk.snap = built
		}
		n.w.count(snapshotMade)
		n.deliver(n.index, func() { n.rep.Step(replica.SnapshotWritten{Index: index}) })
	})
}
