package sim

import (
	"bytes"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/machine"
	"github.com/lockstep-dev/lockstep/server/replica"
)

// A node is one machine of the cluster with the process on it.
type node struct {
	w     *world
	index int
	id    uint64
	clock clock
	disk  *disk
	rnd   random // of its scheduling
	io    random // of its disk

	rep     *replica.Replica // nil while the process is down
	life    int              // counts the processes, so that events of a dead one are void
	booted  time.Duration    // true time of the start
	led     uint64           // the term that it led after the last turn, or zero
	streams map[lead.StreamID]*conn
	unary   map[lead.StreamID]func(lead.Reply)

	paused bool // the process is stopped: nothing is read
	stuck  bool // the loop is held up: readers read, nothing is handled
	inbox  []mail
	turnAt time.Duration // when the next turn is due; -1: none
	turn   int           // numbers the turns that were scheduled

	moved   uint64        // what was applied when well last looked
	movedAt time.Duration // when that last changed
	handed  time.Duration // when it was last asked to hand over leadership

	syncMean  time.Duration
	diskStuck time.Duration // no sync ends before this time
	crashAt   stage         // armed
}

// mail is something that reached the machine while its process did not handle it.
type mail struct {
	from int // machine: mail from one machine stays in order
	put  func()
}

func newNode(w *world, index int, id uint64, voters []uint64) *node {
	name := fmt.Sprintf("node %d", index)
	return &node{
		w: w, index: index, id: id, clock: newClock(stream(w.opts.Seed, name+" clock")),
		disk: newDisk(voters), rnd: stream(w.opts.Seed, name), io: stream(w.opts.Seed, name+" disk"),
		turnAt: -1, syncMean: time.Millisecond,
	}
}

func (n *node) up() bool             { return n.rep != nil }
func (n *node) local() time.Duration { return n.clock.read(n.w.now) }

// boot starts the process from what is on the disk.
func (n *node) boot() {
	if n.up() {
		return
	}
	recovered, err := n.disk.recover()
	if err != nil {
		panic(fmt.Sprintf("sim: node %d finds its own snapshot damaged: %v", n.index, err))
	}
	n.life++
	rep, err := replica.New(n.w.replicaConfig(n, recovered))
	if err != nil {
		panic(fmt.Sprintf("sim: node %d: %v", n.index, err))
	}
	n.rep, n.booted = rep, n.w.now
	n.streams, n.unary = map[lead.StreamID]*conn{}, map[lead.StreamID]func(lead.Reply){}
	n.paused, n.stuck, n.inbox, n.led = false, false, nil, 0
	n.w.note("node %d starts at snapshot %d with %d entries", n.index, recovered.Snapshot.GetIndex(), len(recovered.Entries))
	n.poke(0)
}

// crash ends the process. Of what was not synced, the first keep appends survive.
func (n *node) crash(keep int, why string) {
	if !n.up() {
		return
	}
	n.w.note("node %d ends: %s; %d of %d pending writes survive", n.index, why, min(keep, len(n.disk.pending)), len(n.disk.pending))
	n.w.count(nodeCrashed)
	if len(n.disk.pending) > keep {
		n.w.count(writesLost)
	}
	n.disk.crash(keep)
	n.rep, n.crashAt, n.turnAt = nil, never, -1
	n.inbox = nil
	for _, c := range sortedConns(n.streams) {
		c.serverGone()
	}
	n.streams, n.unary = nil, nil
}

// wellWithin is how old the newest round and the oldest entry of a leader that is well may be.
const wellWithin = 500 * time.Millisecond

// well reports whether the node serves and nothing holds it up, and in which term. It must be
// called every serviceEvery.
func (n *node) well() (term uint64, ok bool) {
	if !n.up() {
		return 0, false
	}
	s := n.rep.Status()
	if s.InFlight == 0 || s.Applied != n.moved {
		n.moved, n.movedAt = s.Applied, n.w.now
	}
	// While it hands over, it proposes nothing.
	handing := n.handed != 0 && n.w.now-n.handed < 2*time.Second
	held := n.paused || n.stuck || handing || n.w.now-n.movedAt > wellWithin || s.Confirmed > wellWithin
	return s.Term, s.Serving && !held
}

// deliver hands something to the process, now or when it runs again. from is the machine that it
// came from.
func (n *node) deliver(from int, put func()) {
	switch {
	case !n.up():
	case n.paused || n.stuck:
		if len(n.inbox) < maxInbox {
			n.inbox = append(n.inbox, mail{from, put})
		}
	default:
		put()
		n.poke(0)
	}
}

// maxInbox bounds what the buffers of a stopped process hold. Anything beyond it is lost, as with a
// full socket.
const maxInbox = 20_000

// message delivers a raft message.
func (n *node) message(from *node, m *raftpb.Message) {
	n.deliver(from.index, func() { n.rep.Step(replica.Message{Message: m}) })
}

func (n *node) unreachable(id uint64) {
	n.deliver(n.index, func() { n.rep.Step(replica.Unreachable{ID: id}) })
}

// request delivers a client request. It is stamped when the process reads it, which a stuck loop
// does not delay.
func (n *node) request(from int, r lead.Request) {
	if n.stuck && !n.paused {
		r.Received = lead.Time(n.local())
	}
	n.deliver(from, func() {
		if r.Received == 0 {
			r.Received = lead.Time(n.local())
		}
		if b, ok := r.Body.(lead.KeepAlive); ok && n.streams[r.Stream] != nil {
			n.streams[r.Stream].reached[b.Number] = n.w.now
		}
		n.rep.Step(replica.Asked{Request: r})
	})
}

// snapshot delivers a streamed snapshot; done is called with whether it arrived.
func (n *node) snapshot(from *node, m *raftpb.Message, file snapshot, done func(ok bool)) {
	if !n.up() {
		done(false)
		return
	}
	n.deliver(from.index, func() {
		state, err := machine.Restore(bytes.NewReader(file.data))
		if err != nil {
			panic(fmt.Sprintf("sim: node %d was sent a damaged snapshot: %v", n.index, err))
		}
		n.disk.received[m.GetSnapshot().GetMetadata().GetIndex()] = snapshot{m.GetSnapshot().GetMetadata(), file.data}
		n.w.count(snapshotReceived)
		n.w.note("node %d received snapshot %d from node %d", n.index, m.GetSnapshot().GetMetadata().GetIndex(), from.index)
		n.rep.Step(replica.SnapshotReceived{Message: m, Machine: state})
		done(true)
	})
}

// resume lets a stopped process or loop run again. The mail of each machine keeps its order; which
// socket is read first is random, and so is how much of it the loop handles in one turn.
func (n *node) resume() {
	if !n.up() || !n.paused && !n.stuck {
		return
	}
	n.paused, n.stuck = false, false
	inbox, life := n.inbox, n.life
	n.inbox = nil
	for _, run := range shuffle(n.rnd, inbox) {
		for _, m := range run {
			m.put()
		}
		if n.rnd.chance(0.3) {
			n.takeTurn()
		}
		if n.life != life || !n.up() || n.w.failed() {
			return
		}
	}
	n.poke(0)
}

// shuffle interleaves the mail of different machines, a run of one after a run of another.
func shuffle(r random, inbox []mail) (runs [][]mail) {
	var senders []int
	by := map[int][]mail{}
	for _, m := range inbox {
		if by[m.from] == nil {
			senders = append(senders, m.from)
		}
		by[m.from] = append(by[m.from], m)
	}
	for len(senders) > 0 {
		i := r.IntN(len(senders))
		s := senders[i]
		run := min(len(by[s]), 1+r.IntN(50)) // a reader takes what its socket holds
		runs = append(runs, by[s][:run])
		if by[s] = by[s][run:]; len(by[s]) == 0 {
			senders = append(senders[:i], senders[i+1:]...)
		}
	}
	return runs
}

// poke schedules a turn within the time that a loop takes to come round, plus d.
func (n *node) poke(d time.Duration) {
	at := n.w.now + d + n.rnd.between(10*time.Microsecond, n.w.plan.turnTime)
	if n.turnAt >= 0 && n.turnAt <= at {
		return
	}
	n.turnAt = at
	n.turn++
	turn, life := n.turn, n.life
	n.w.at(at, func() {
		if n.turn == turn && n.life == life && n.up() {
			n.takeTurn()
		}
	})
}
