package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/replica"
	"github.com/lockstep-dev/lockstep/sim/check"
)

// A world is everything in one run.
type world struct {
	schedule
	opts     Options
	plan     plan
	tr       *trace
	net      *network
	nodes    []*node
	byID     map[uint64]*node
	clients  []*client
	operator *operator
	callers  []*caller
	book     *check.Book
	secrets  *rand.ChaCha8
	streams  lead.StreamID

	calm     bool
	heals    []*healing
	counters map[string]int
	grants   int
	failure  *Failure
}

// A healing is the end of a fault in progress.
type healing struct {
	done bool
	do   func()
}

func newWorld(o Options) *world {
	w := &world{opts: o, plan: newPlan(o), tr: newTrace(), byID: map[uint64]*node{}, counters: map[string]int{}}
	w.secrets = entropy(o.Seed, "secrets")
	w.book = check.NewBook(firstIndex, w.count)
	// Including the operator and the canary.
	machines := w.plan.nodes + w.plan.clients + w.plan.callers + 2
	w.net = newNetwork(w, machines)
	w.net.loss, w.net.double, w.net.reorder, w.net.latency = w.plan.loss, w.plan.double, w.plan.reorder, w.plan.latency
	var voters []uint64
	for i := range w.plan.nodes {
		voters = append(voters, hashOf(nodeName(i)))
	}
	for i, id := range voters {
		n := newNode(w, i, id, voters)
		n.syncMean = w.plan.syncMean
		w.nodes = append(w.nodes, n)
		w.byID[id] = n
	}
	for i := range w.plan.clients {
		w.clients = append(w.clients, newClient(w, i, w.plan.nodes+i))
	}
	for i := range w.plan.callers {
		w.callers = append(w.callers, newCaller(w, i, w.plan.nodes+w.plan.clients+i))
	}
	w.operator = &operator{w: w, machine: machines - 2, rnd: stream(o.Seed, "operator")}
	return w
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// lockName is the name of lock i; all share a namespace.
func (w *world) lockName(i int) string { return "t/" + string(rune('a'+i)) }

func (w *world) note(format string, args ...any) {
	w.tr.note(w.now, format, args...)
	if w.opts.Trace != nil {
		w.opts.Trace(string(w.tr.buf))
	}
}

func (w *world) mix(a, b, c uint64) { w.tr.mix(w.now, a, b, c) }

func (w *world) count(what string) { w.counters[what]++ }

func (w *world) failed() bool { return w.failure != nil }

// check ends the run if v is a broken promise.
func (w *world) check(v *check.Violation) {
	if v == nil || w.failed() {
		return
	}
	w.note("BROKEN %s", v.Error())
	w.failure = &Failure{Seed: w.opts.Seed, Promise: v.Promise, Detail: v.Detail, At: w.now}
}

// heal ends a fault after d, or when the calm begins.
func (w *world) heal(d time.Duration, do func()) {
	h := &healing{do: do}
	w.heals = append(w.heals, h)
	w.after(d, h.run)
}

func (h *healing) run() {
	if !h.done {
		h.done = true
		h.do()
	}
}

// replicaConfig returns the configuration of a process of the node.
func (w *world) replicaConfig(n *node, recovered replica.Recovered) replica.Config {
	limits := command.DefaultLimits()
	limits.HistoryBytes, limits.AbnormalBytes = 64<<10, 64<<10 // the minimum: snapshots stay small
	limits.WaitersPerName, limits.ClaimsPerSession = w.plan.waiters, w.plan.claims
	limits.RememberedClaims = 1 // the minimum: what a client needs does not count in it
	return replica.Config{
		ID: n.id, Group: 1, Recovered: recovered,
		SnapshotEntries: w.plan.snapshotAt, SnapshotTail: w.plan.tail, SnapshotLag: w.plan.lag, CheckEvery: 50,
		Built: w.plan.built(), AnyLevel: true,
		InFlight: w.plan.inFlight, QueueCommands: w.plan.queue, Limits: limits,
		Rand: entropy(w.opts.Seed, fmt.Sprintf("node %d life %d", n.index, n.life)),
	}
}

// applied checks one entry that a node applied against the log and the clients' views.
func (w *world) applied(n *node, a *replica.Applied) {
	if w.failed() {
		return
	}
	var encoded []byte
	if a.Entry != nil {
		encoded = command.AppendEntry(nil, a.Entry)
	}
	w.book.SetNow(w.now)
	first, v := w.book.Apply(check.Applied{
		Node: n.id, Index: a.Index, Term: a.Term, Entry: a.Entry, Encoded: encoded, Output: &a.Output,
	})
	w.check(v)
	if !first || a.Entry == nil {
		return
	}
	w.note("node %d applies %d of term %d: %d commands, %d events", n.index, a.Index, a.Term, len(a.Entry.Commands), len(a.Output.Events))
	for i := range a.Output.Changes {
		if ch := &a.Output.Changes[i]; ch.Ended == command.SessionExpired {
			w.expired(ch.Session, a.Term)
		}
	}
	for i := range a.Output.Events {
		if a.Output.Events[i].Kind == command.EventGranted {
			for _, c := range w.clients {
				w.beliefs(c)
			}
			for _, c := range w.callers {
				w.believes(c)
			}
			return
		}
	}
}

// expired checks that the client of a session whose lease the service has just ended no longer
// believes in it, and has no keepalive waiting at the leader that ended it.
func (w *world) expired(id command.SessionID, term uint64) {
	for _, c := range w.clients {
		if k := c.conn; k != nil && c.id == id && k.waits(term) {
			for _, number := range slices.Sorted(maps.Keys(k.reached)) {
				w.check(w.book.NeedlessExpiry(id, term, k.reached[number]))
			}
		}
		if c.alive && c.id == id && c.sess.Valid(c.local()) {
			w.check(check.Outlived(id, c.sess.ValidUntil()-c.local()))
		}
	}
	for _, c := range w.callers {
		if c.id == id && c.local() < c.until {
			w.check(check.Outlived(id, c.until-c.local()))
		}
	}
}

// serviceEvery is how often the book is told which leader is well.
const serviceEvery = 50 * time.Millisecond

// watchService repeatedly tells the book which leader is well.
func (w *world) watchService() {
	w.book.SetNow(w.now)
	w.check(w.book.Serves(w.wellTerm()))
	w.after(serviceEvery, w.watchService)
}

// wellTerm returns the term whose leader is well: its process runs, its rounds are confirmed, and
// its log moves.
func (w *world) wellTerm() (term uint64) {
	for _, n := range w.nodes {
		if t, ok := n.well(); ok {
			term = max(term, t)
		}
	}
	return term
}

// leaderHint returns the address of the leader as the node knows it, or "".
func (w *world) leaderHint(n *node) string {
	if !n.up() {
		return ""
	}
	if l := w.byID[n.rep.Status().Leader]; l != nil {
		return nodeName(l.index)
	}
	return ""
}
