package sim

import (
	"strings"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/sim/check"
)

// The bounds of the recovery, counted from the end of the faults.
const (
	// serveWithin is how soon a new client gets a free lock.
	serveWithin = 10 * time.Second
	// drainWithin is how soon all queues and holders are gone: those of dead clients need a new
	// leader, 1.25 TTL and the grace, those of revoked or delayed claims the same again, and the
	// waiters after them may belong to dead clients too. TTLs are at most 10 s here.
	drainWithin = 90 * time.Second
	// agreeWithin is how soon after that all nodes have applied the same.
	agreeWithin = 15 * time.Second
)

// recover stops all faults and holds the cluster to its bounds.
func (w *world) recover() {
	w.note("calm")
	w.calm = true
	w.net.loss, w.net.double, w.net.reorder, w.net.latency = 0, 0, false, 300*time.Microsecond
	for _, h := range w.heals {
		h.run()
	}
	for _, n := range w.nodes {
		n.diskStuck, n.syncMean, n.crashAt, n.clock.jump = 0, time.Millisecond, never, 0
		n.boot()
	}
	start := w.now
	served := false
	w.canary(func() { served = true })
	if !w.until(start+serveWithin, func() bool { return served }) {
		w.late("a new client was not served within %v", serveWithin)
		return
	}
	well := w.now
	drained := func() bool {
		w.book.SetNow(w.now)
		w.check(w.book.Overdue(w.now, well))
		return len(w.book.Remaining()) == 0
	}
	if !w.until(start+drainWithin, drained) {
		w.late("after %v there are claims left: "+strings.ReplaceAll(strings.Join(w.book.Remaining(), "; "), "%", "%%"), drainWithin)
		return
	}
	if !w.until(w.now+agreeWithin, w.agreed) {
		w.late("the nodes did not come to the same index within %v", agreeWithin)
	}
}

func (w *world) late(format string, args ...any) {
	w.check(check.Late(format, args...))
}

// agreed reports whether all nodes have applied everything that any node has, and one serves.
func (w *world) agreed() bool {
	serving := false
	for _, n := range w.nodes {
		if !n.up() {
			return false
		}
		s := n.rep.Status()
		serving = serving || s.Serving
		if s.Applied != w.book.Last() {
			return false
		}
	}
	return serving
}

// canary starts a client that arrives after all faults and wants one lock.
func (w *world) canary(served func()) {
	c := newClient(w, len(w.clients), len(w.net.cut)-1)
	c.served = served
	w.clients = append(w.clients, c)
	c.start()
	c.deliver(func() { c.ask(&pb.ClaimSpec{Names: []string{"t/canary"}}) })
}
