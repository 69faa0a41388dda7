package sim

import (
	"time"

	"github.com/lockstep-dev/lockstep/server/replica"
)

// strikes are all kinds of faults that come and go, each with the mean time between two of them. A
// seed enables some of them, at rates from a quarter to four times these.
var strikes = []fault{
	{name: "partition", every: 12 * time.Second, hit: partition},
	{name: "one-way cut", every: 10 * time.Second, hit: oneWay},
	{name: "isolate leader", every: 12 * time.Second, hit: isolateLeader},
	{name: "island", every: 8 * time.Second, hit: island},
	{name: "client cut off", every: 8 * time.Second, hit: clientCut},
	{name: "node crash", every: 6 * time.Second, hit: crashNode},
	{name: "leader crash", every: 8 * time.Second, hit: crashLeader},
	{name: "power cut", every: 20 * time.Second, hit: powerCut},
	{name: "node pause", every: 8 * time.Second, hit: pauseNode},
	{name: "leader pause", every: 8 * time.Second, hit: pauseLeader},
	{name: "loop stuck", every: 5 * time.Second, hit: stickLoop},
	{name: "loop stutter", every: time.Second, hit: stutter},
	{name: "disk stuck", every: 8 * time.Second, hit: stickDisk},
	{name: "disk slow", every: 10 * time.Second, hit: slowDisk},
	{name: "hand-over", every: 4 * time.Second, hit: handOver},
	{name: "campaign", every: 6 * time.Second, hit: campaign},
	{name: "wall jump", every: 5 * time.Second, hit: jumpWall},
	{name: "client pause", every: 5 * time.Second, hit: pauseClient},
	{name: "client death", every: 6 * time.Second, hit: killClient},
	{name: "stream torn", every: 2 * time.Second, hit: tearStream},
	{name: "old answers", every: 6 * time.Second, hit: oldAnswers},
	{name: "stream deaf", every: 5 * time.Second, hit: deafenStream},
	{name: "late changes", every: 3 * time.Second, hit: lateChanges},
	{name: "revoke", every: time.Second, hit: func(w *world, _ random) { w.operator.revoke() }},
	{name: "read", every: 500 * time.Millisecond, hit: func(w *world, _ random) { w.operator.look() }},
}

// strike makes the fault occur again and again until the calm.
func (w *world) strike(f *fault) {
	w.after(f.rnd.about(f.every), func() {
		if w.calm {
			return
		}
		w.count("fault: " + f.name)
		f.hit(w, f.rnd)
		w.strike(f)
	})
}

func (w *world) anyNode(r random) *node { return w.nodes[r.IntN(len(w.nodes))] }

func (w *world) anyClient(r random) *client { return w.clients[r.IntN(len(w.clients))] }

// leader returns the node that leads in the highest term, or any node.
func (w *world) leader(r random) *node {
	best, term := w.anyNode(r), uint64(0)
	for _, n := range w.nodes {
		if !n.up() {
			continue
		}
		if s := n.rep.Status(); s.Role == replica.Leader && s.Term > term {
			best, term = n, s.Term
		}
	}
	return best
}

// cutFor cuts links for a while. Clients stay connected unless they are on the list.
func (w *world) cutFor(d time.Duration, links [][2]int) {
	for _, l := range links {
		w.net.sever(l[0], l[1], 1)
	}
	heal := func() {
		for _, l := range links {
			w.net.sever(l[0], l[1], -1)
		}
	}
	w.heal(d, heal)
}

// partition splits the nodes into two groups, one of which may be a majority, or leaves a bridge
// between them. Each client is on one side or sees both.
func partition(w *world, r random) {
	side := make([]int, len(w.net.cut))
	for i := range side {
		side[i] = r.IntN(2)
		if i >= len(w.nodes) && r.chance(0.5) {
			side[i] = 2 // sees both sides
		}
	}
	if r.chance(0.3) {
		side[r.IntN(len(w.nodes))] = 2 // the bridge
	}
	var links [][2]int
	for i, a := range side {
		for j, b := range side {
			if a+b == 1 {
				links = append(links, [2]int{i, j})
			}
		}
	}
	w.note("partition %v", side)
	w.cutFor(r.skewed(300*time.Millisecond, 12*time.Second), links)
}

func oneWay(w *world, r random) {
	from := r.IntN(len(w.net.cut))
	var links [][2]int
	for to := range w.net.cut {
		if to != from && r.chance(0.6) {
			links = append(links, [2]int{from, to})
		}
	}
	if r.chance(0.5) {
		for i := range links {
			links[i][0], links[i][1] = links[i][1], links[i][0]
		}
	}
	w.note("one-way cut %v", links)
	w.cutFor(r.skewed(300*time.Millisecond, 8*time.Second), links)
}

// isolateLeader cuts the leader off from the other nodes, but not from the clients.
func isolateLeader(w *world, r random) {
	n := w.leader(r)
	var links [][2]int
	for _, o := range w.nodes {
		if o != n {
			links = append(links, [2]int{n.index, o.index}, [2]int{o.index, n.index})
		}
	}
	w.note("node %d is cut off from the others", n.index)
	w.cutFor(r.skewed(300*time.Millisecond, 12*time.Second), links)
}

// island cuts the leader off from the other nodes together with some clients, which see no other
// node, for longer than their leases. Usually its process also stops for part of a lease, so that
// it wakes up as a past leader.
func island(w *world, r random) {
	n := w.leader(r)
	if !n.up() || n.paused {
		return
	}
	inside := make([]bool, len(w.net.cut))
	inside[n.index] = true
	for _, c := range w.clients {
		inside[c.machine] = r.chance(0.6)
	}
	var links [][2]int
	for i := range inside {
		for j := range inside {
			if inside[i] != inside[j] {
				links = append(links, [2]int{i, j})
			}
		}
	}
	ttl := pick(r, w.plan.ttls...)
	w.note("island of node %d and machines %v", n.index, inside)
	w.cutFor(r.between(ttl, 5*ttl/2), links)
	if !r.chance(0.8) {
		return
	}
	w.pauseFor(n, r.between(ttl/4, 3*ttl/4))
	for _, c := range w.clients {
		// Some of them read an old answer before they look at the clock.
		if inside[c.machine] && r.chance(0.5) {
			w.after(r.between(0, ttl/2), func() { w.pauseClientFor(c, r.between(ttl/4, 3*ttl/4)) })
		}
	}
}

// crashNode ends a process now or within its next turn.
func crashNode(w *world, r random) { w.crashSoon(w.anyNode(r), r) }

func crashLeader(w *world, r random) { w.crashSoon(w.leader(r), r) }

func (w *world) crashSoon(n *node, r random) {
	if s := stage(r.IntN(int(stages))); s != never {
		n.crashAt = s
		return
	}
	n.die("killed")
}

func powerCut(w *world, r random) {
	w.note("power cut")
	for _, n := range w.nodes {
		n.die("power cut")
	}
}

func pauseNode(w *world, r random) { w.pause(w.anyNode(r), r) }

func pauseLeader(w *world, r random) { w.pause(w.leader(r), r) }

func (w *world) pause(n *node, r random) {
	if !n.up() || n.paused {
		return
	}
	w.pauseFor(n, r.skewed(100*time.Millisecond, w.longest(r)))
}

// pauseFor stops the process of a node for a while.
func (w *world) pauseFor(n *node, d time.Duration) {
	w.note("node %d pauses for %v", n.index, d)
	n.paused = true
	life := n.life
	w.heal(d, func() {
		if n.life == life {
			w.note("node %d goes on", n.index)
			n.resume()
		}
	})
}

// stickLoop holds up the loop of a node while its readers continue.
func stickLoop(w *world, r random) {
	n := w.leader(r)
	if !n.up() || n.paused || n.stuck {
		return
	}
	w.stickFor(n, r.skewed(10*time.Millisecond, 6*time.Second))
}

// stutter holds up a loop for less time than an election takes.
func stutter(w *world, r random) {
	if n := w.anyNode(r); n.up() && !n.paused && !n.stuck {
		w.stickFor(n, r.skewed(5*time.Millisecond, 400*time.Millisecond))
	}
}

func (w *world) stickFor(n *node, d time.Duration) {
	w.note("node %d is stuck for %v", n.index, d)
	n.stuck = true
	life := n.life
	w.heal(d, func() {
		if n.life == life {
			n.resume()
		}
	})
}

func stickDisk(w *world, r random) {
	n := w.leader(r)
	d := r.skewed(100*time.Millisecond, 12*time.Second)
	w.note("the disk of node %d is stuck for %v", n.index, d)
	n.diskStuck = w.now + d
}

func slowDisk(w *world, r random) {
	n := w.anyNode(r)
	n.syncMean = pick(r, 5*time.Millisecond, 50*time.Millisecond, 200*time.Millisecond)
	w.heal(r.skewed(time.Second, 10*time.Second), func() { n.syncMean = w.plan.syncMean })
}

func handOver(w *world, r random) {
	n := w.leader(r)
	to := w.anyNode(r).id
	if r.chance(0.3) {
		to = 0
	}
	n.handed = w.now
	n.deliver(n.index, func() { n.rep.Step(replica.HandOver{To: to}) })
}

func campaign(w *world, r random) {
	n := w.anyNode(r)
	n.deliver(n.index, func() { n.rep.Step(replica.Campaign{}) })
}

func jumpWall(w *world, r random) {
	w.anyNode(r).clock.jump += r.between(-time.Hour, time.Hour)
}

// longest bounds pauses: usually about a TTL, rarely a minute.
func (w *world) longest(r random) time.Duration {
	if r.chance(0.05) {
		return time.Minute
	}
	return w.plan.ttls[len(w.plan.ttls)-1] * 2
}
