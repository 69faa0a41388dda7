package sim

import "time"

func clientCut(w *world, r random) {
	c := w.anyClient(r)
	w.note("%v is cut off", c)
	w.cutFor(r.skewed(200*time.Millisecond, 15*time.Second), w.linksOf(c.machine))
}

func pauseClient(w *world, r random) {
	c := w.anyClient(r)
	w.pauseClientFor(c, r.skewed(100*time.Millisecond, w.longest(r)))
}

func (w *world) pauseClientFor(c *client, d time.Duration) {
	if !c.alive || c.paused {
		return
	}
	w.note("%v pauses for %v", c, d)
	c.pause()
	life := c.life
	w.heal(d, func() {
		if c.life == life {
			c.resume()
		}
	})
}

func killClient(w *world, r random) {
	c := w.anyClient(r)
	if !c.alive {
		return
	}
	c.die()
	w.heal(r.skewed(50*time.Millisecond, 8*time.Second), c.start)
}

func tearStream(w *world, r random) {
	if k := w.anyClient(r).conn; k != nil {
		k.tear()
	}
}

// oldAnswers slows down what a client receives, and then usually cuts it off for longer than its
// lease: the last confirmation that it received was outdated.
func oldAnswers(w *world, r random) {
	c := w.anyClient(r)
	k := c.conn
	if k == nil {
		return
	}
	k.down.extra = r.between(300*time.Millisecond, 2500*time.Millisecond)
	w.heal(c.ttl, func() { k.down.extra = 0 })
	if r.chance(0.7) {
		w.after(k.down.extra+r.between(0, c.ttl/2), func() {
			if !w.calm {
				w.cutFor(r.between(c.ttl, 2*c.ttl), w.linksOf(c.machine))
			}
		})
	}
}

// linksOf returns all links between the nodes and a machine.
func (w *world) linksOf(machine int) (links [][2]int) {
	for _, n := range w.nodes {
		links = append(links, [2]int{n.index, machine}, [2]int{machine, n.index})
	}
	return links
}

func deafenStream(w *world, r random) {
	if k := w.anyClient(r).conn; k != nil {
		w.count(streamDeaf)
		k.deaf = true
	}
}

// lateChanges lets answers overtake the changes of a stream for a while. No service does that; it
// tests the rule that a lease moves only with knowledge.
func lateChanges(w *world, r random) {
	k := w.anyClient(r).conn
	if k == nil || w.now < k.lateTill {
		return
	}
	k.lateTill = w.now + r.skewed(100*time.Millisecond, 10*time.Second)
	w.heal(k.lateTill-w.now, k.endLate)
}
