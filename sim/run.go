package sim

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"io"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep/sim/check"
)

// running admits one simulation at a time: there is one crypto/rand.Reader for the process.
var running sync.Mutex

// Run runs one simulation to its end and returns a report. It panics if the options are out of
// bounds.
func Run(o Options) Report { return play(o, (*world).run) }

// play makes a world and runs f in it.
func play(o Options, f func(*world)) Report {
	o = o.withDefaults()
	running.Lock()
	defer running.Unlock()
	defer func(r io.Reader) { rand.Reader = r }(rand.Reader)
	rand.Reader = entropy(o.Seed, "raft")
	w := newWorld(o)
	w.guarded(func() { f(w) })
	return w.report()
}

func (o Options) withDefaults() Options {
	if o.Duration == 0 {
		o.Duration = 30 * time.Second
	}
	if o.Nodes != 0 && o.Nodes != 3 && o.Nodes != 5 || o.Clients < 0 || o.Clients > 50 || o.Duration < 0 {
		panic(fmt.Sprintf("sim: options out of bounds: %+v", o))
	}
	return o
}

// guarded runs f and turns a panic of the service's code into a broken promise.
func (w *world) guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			w.check(&check.Violation{Promise: check.NoPanic, Detail: fmt.Sprintf("%v\n%s", p, debug.Stack())})
		}
	}()
	f()
}

// run runs the safety phase, and then the calm in which the cluster has to recover.
func (w *world) run() {
	w.start()
	w.until(w.opts.Duration, nil)
	if !w.failed() {
		w.recover()
	}
}

// start starts all processes, and the faults of the plan.
func (w *world) start() {
	for _, n := range w.nodes {
		n.boot()
	}
	for _, c := range w.clients {
		c.start()
	}
	for _, c := range w.callers {
		c.open()
	}
	for _, f := range w.plan.faults {
		w.strike(f)
	}
	w.watchService()
}

// until runs events up to the time t or until done returns true, and reports whether it did.
func (w *world) until(t time.Duration, done func() bool) bool {
	for !w.failed() {
		if done != nil && done() {
			return true
		}
		if !w.step(t) {
			break
		}
	}
	return done != nil && done()
}

func (w *world) report() Report {
	r := Report{
		Seed: w.opts.Seed, Nodes: len(w.nodes), Clients: w.plan.clients, Simulated: w.now, Events: w.ran,
		Entries: w.book.Last(), Grants: w.grants, Faults: w.plan.faultNames(), Counters: w.counters, Failure: w.failure,
	}
	r.TraceHash = fmt.Sprintf("%016x", w.tr.hash.Sum64())
	if r.Failure != nil {
		r.Failure.Trace = w.tr.last()
	}
	return r
}

// MaxFailures is how many failing seeds RunMany collects before it stops.
const MaxFailures = 3

// shrinkTries bounds the runs that look for a smaller failure.
const shrinkTries = 60

// RunMany runs count seeds from options.Seed on, one after the other, until ctx is done or
// [MaxFailures] seeds have failed. each, if not nil, is called with every report.
func RunMany(ctx context.Context, options Options, count int, each func(Report)) Summary {
	s := Summary{FirstSeed: options.Seed, Counters: map[string]int{}}
	start := time.Now()
	hash := fnv.New64a()
	for i := 0; i < count && ctx.Err() == nil && len(s.Failures) < MaxFailures; i++ {
		o := options
		o.Seed += uint64(i)
		r := Run(o)
		hash.Write([]byte(r.TraceHash))
		if r.Failure != nil && len(s.Failures) == 0 {
			small, _ := Shrink(ctx, o, r, shrinkTries)
			r.Failure.Shrunk = &Shrunk{small.Clients, small.Duration.String(), small.Without}
		}
		s.add(r)
		if each != nil {
			each(r)
		}
	}
	s.TraceHash = fmt.Sprintf("%016x", hash.Sum64())
	s.WallSeconds = time.Since(start).Seconds()
	for _, what := range reachable {
		if s.Counters[what] == 0 {
			s.Unreached = append(s.Unreached, what)
		}
	}
	sort.Strings(s.Unreached)
	if s.Seeds >= longRun && options.asDrawn() && len(s.Unreached) > 0 {
		s.Failures = append(s.Failures, Failure{Seed: options.Seed, Promise: check.Reach, Detail: strings.Join(s.Unreached, ", ")})
	}
	return s
}

// longRun is how many seeds a run must have before it is expected to have reached everything.
const longRun = 200

// asDrawn reports whether the options leave everything to the seed.
func (o Options) asDrawn() bool {
	o = o.withDefaults()
	return !o.Calm && len(o.Without)+len(o.Only)+o.Nodes+o.Clients == 0 && o.TTL == 0 && o.Duration >= 30*time.Second
}

func (s *Summary) add(r Report) {
	s.Seeds++
	s.SimulatedSeconds += r.Simulated.Seconds()
	s.Events += r.Events
	s.Entries += r.Entries
	s.Grants += r.Grants
	for k, v := range r.Counters {
		s.Counters[k] += v
	}
	if r.Failure != nil {
		s.Failures = append(s.Failures, *r.Failure)
	}
}

// reachable is what a long run must reach, so that the absence of failures means something.
// check.StaleIgnored is not included: no leader forwards its proposals, so a command never lands in
// another term.
var reachable = []string{
	check.ExpiredQueued, check.ExpiredHolding, check.WaitEnded, check.DelayEnded, check.RevokedClaim,
	check.RevokedNow, check.RevokedSession, check.Delayed, check.SharedToken, check.Repeated, check.CancelFirst,
	check.RefusedEnded, check.WrittenLease, check.WrittenDelay, check.Rewritten, messageLost, messageDoubled, writesLost, snapshotMade, snapshotReceived, nodeExited,
	streamTorn, changeHeldBack, refusedNotReady, revokedUnheard, readAnswered, callerRenewed, callRepeated,
}
