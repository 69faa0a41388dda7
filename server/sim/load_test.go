package sim

import (
	"testing"
	"time"

	"github.com/lockstep-dev/lockstep/server/replica"
)

// busy makes the work of a world a load that does not stop: every client takes a free lock and gives it back, ten times a
// second.
func (w *world) busy() {
	p := &w.plan
	p.names, p.think, p.holders, p.shared, p.permits, p.multi, p.bounded, p.lockDelay = 4, 100*time.Millisecond, 0, 0, 0, 0, 0, 0
	p.ttls = []time.Duration{30 * time.Second}
}

// follower is a node that does not lead.
func (w *world) follower() *node {
	for _, n := range w.nodes {
		if n.rep.Status().Role == replica.Follower {
			return n
		}
	}
	return nil
}

// isolate cuts a node off from the other nodes, and gives the way back.
func (w *world) isolate(n *node) (heal func()) {
	set := func(d int) {
		for _, o := range w.nodes {
			if o != n {
				w.net.sever(n.index, o.index, d)
				w.net.sever(o.index, n.index, d)
			}
		}
	}
	set(1)
	return func() { set(-1) }
}

// TestAFollowerCatchesUpUnderLoad: a follower needs a snapshot, and while one is on its way the load makes the next.
// It catches up although the load never stops.
func TestAFollowerCatchesUpUnderLoad(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		r := play(Options{Seed: seed, Calm: true, Nodes: 3, Clients: 6, Trace: tracer(t)}, func(w *world) {
			w.busy()
			w.plan.snapshotAt, w.plan.tail, w.plan.lag = 100, 1<<10, 1<<20
			w.plan.streamLeast, w.plan.streamTime = 4*time.Second, 5*time.Second
			w.start()
			w.until(5*time.Second, nil)
			n := w.follower()
			heal := w.isolate(n)
			w.until(w.now+30*time.Second, nil)
			heal()
			made, from := w.counters[snapshotMade], w.now
			caughtUp := func() bool { return n.rep.Status().Applied+5 >= w.book.Last() }
			if !w.until(w.now+30*time.Second, caughtUp) {
				t.Errorf("seed %d: after 30 s of load it has applied %d of %d", seed, n.rep.Status().Applied, w.book.Last())
			}
			if w.until(w.now+10*time.Second, func() bool { return !caughtUp() && n.rep.Status().Applied+50 < w.book.Last() }) {
				t.Errorf("seed %d: it fell behind again", seed)
			}
			t.Logf("seed %d: %d entries, %d snapshots received, %d made from %v on", seed, w.book.Last(), w.counters[snapshotReceived], w.counters[snapshotMade]-made, from)
			if got := w.counters[snapshotReceived]; got == 0 || got > 2 {
				t.Errorf("seed %d: %d snapshots were received, want one", seed, got)
			}
		})
		if r.Failure != nil {
			mustHold(t, []Failure{*r.Failure})
		}
	}
}
