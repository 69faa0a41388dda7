package sim

import (
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep/server/command"
)

// A plan is what one seed is about: sizes, the kind of work, and which faults occur how often.
type plan struct {
	nodes int

	// The work.
	clients, callers                           int
	names                                      int
	ttls                                       []time.Duration
	holders                                    float64 // how many claims are held, for up to hold
	think, hold                                time.Duration
	shared, permits, multi, bounded, lockDelay float64

	// The machines.
	turnTime    time.Duration // the longest that a loop takes to come round
	streamLeast time.Duration // the shortest time that a snapshot takes to arrive
	streamTime  time.Duration // the longest
	syncMean    time.Duration
	steadySync  bool   // every sync takes the mean
	snapshotAt  uint64 // entries between two snapshots
	tail        uint64 // bytes of log kept before a snapshot
	lag         uint64 // bytes of log kept for a follower that is catching up
	inFlight    int
	queue       int
	waiters     uint32 // limit of the waiters of a name
	claims      uint32 // limit of the claims of a session times their names
	// clockWrong is how long the wall clocks are before the build, so that nothing is granted; 0:
	// never.
	clockWrong time.Duration

	// The faults.
	faults                []*fault
	loss, double          float64
	reorder               bool
	latency               time.Duration
	revokeNow, revokeTorn float64
	down                  time.Duration // the longest that a process is down
}

func newPlan(o Options) plan {
	r := stream(o.Seed, "plan")
	p := plan{nodes: pick(r, 3, 3, 5), clients: 3 + r.IntN(4)}
	if o.Nodes > 0 {
		p.nodes = o.Nodes
	}
	if o.Clients > 0 {
		p.clients = o.Clients
	}
	p.drawWork(r)
	p.drawMachines(r)
	p.drawFaults(o, stream(o.Seed, "swarm"))
	if late := stream(o.Seed, "wrong clock"); late.chance(0.15) {
		p.clockWrong = late.skewed(200*time.Millisecond, 10*time.Second)
	}
	if o.TTL > 0 {
		p.ttls = []time.Duration{o.TTL}
	}
	return p
}

func (p *plan) drawWork(r random) {
	p.names = 1 + r.IntN(4)
	p.callers = r.IntN(3)
	p.ttls = pick(r, []time.Duration{1 * time.Second, 2 * time.Second}, []time.Duration{2 * time.Second, 4 * time.Second},
		[]time.Duration{3 * time.Second, 10 * time.Second})
	p.think = r.skewed(50*time.Millisecond, time.Second)
	p.hold = pick(r, time.Second, 6*time.Second, 20*time.Second)
	p.holders = pick(r, 0.1, 0.4)
	p.shared = pick(r, 0, 0.2, 0.6)
	p.permits = pick(r, 0, 0.2)
	p.multi = pick(r, 0, 0.3)
	p.bounded = pick(r, 0, 0.3, 0.7)
	p.lockDelay = pick(r, 0, 0.2)
}

func (p *plan) drawMachines(r random) {
	p.turnTime = pick(r, 50*time.Microsecond, 500*time.Microsecond, 10*time.Millisecond)
	p.streamLeast = 5 * time.Millisecond
	p.streamTime = r.skewed(10*time.Millisecond, time.Second)
	p.syncMean = pick(r, 300*time.Microsecond, 2*time.Millisecond, 20*time.Millisecond)
	p.snapshotAt = uint64(pick(r, 20, 60, 300))
	p.tail = uint64(pick(r, 1<<10, 8<<10))
	p.inFlight = pick(r, 1, 1, 4)
	p.queue = pick(r, 8192, 8192, 8)
	p.waiters = pick[uint32](r, 16_384, 16_384, 3)
	p.claims = pick[uint32](r, 4096, 4096, command.MaxNames)
	p.down = r.skewed(200*time.Millisecond, 8*time.Second)
	p.latency = 300 * time.Microsecond
	p.lag = pick(r, uint64(1), 64<<10)
}

// built returns when the program of this world was built; 0: the clocks are right about it.
func (p *plan) built() command.WallMillis {
	if p.clockWrong == 0 {
		return 0
	}
	return command.WallMillis(epoch + p.clockWrong.Milliseconds())
}

// ttl draws the TTL of one client.
func (p *plan) ttl(r random) time.Duration { return pick(r, p.ttls...) }

// downTime draws how long a crashed process stays down.
func (p *plan) downTime(r random) time.Duration { return r.skewed(20*time.Millisecond, p.down) }

// A fault is one kind of fault that strikes from time to time.
type fault struct {
	name  string
	every time.Duration // mean time between two strikes
	rnd   random
	hit   func(w *world, r random)
}

// drawFaults enables a random subset of all kinds: many in some seeds, few in others, because under
// many faults nothing lives long enough to break in ways that need time.
func (p *plan) drawFaults(o Options, r random) {
	if o.Calm {
		return
	}
	on := func(name string, chance float64) bool { // draws always, so that Without shifts nothing
		hit := r.chance(chance)
		if len(o.Only) > 0 {
			return slices.Contains(o.Only, name)
		}
		return hit && !slices.Contains(o.Without, name)
	}
	density := pick(r, 0.1, 0.2, 0.45)
	if on("loss", density) {
		p.loss = pick(r, 0.01, 0.05, 0.2)
	}
	if on("double", density) {
		p.double = pick(r, 0.01, 0.1)
	}
	p.reorder = on("reorder", density)
	if on("slow network", density) {
		p.latency = r.skewed(time.Millisecond, 40*time.Millisecond)
	}
	p.revokeTorn = pick(r, 0.2, 0.7)
	if on("revoke now", 0.3) {
		p.revokeNow = 0.3
	}
	for _, f := range strikes {
		f.rnd = stream(o.Seed, "fault "+f.name)
		f.every = r.skewed(f.every/4, f.every*4)
		if on(f.name, density) {
			p.faults = append(p.faults, &f)
			if f.name == "island" { // a stale leader can do harm only to a long lease
				p.ttls = pick(r, p.ttls, []time.Duration{10 * time.Second})
			}
		}
	}
}

// steady are the kinds of faults that are present all the time, in addition to the strikes.
var steady = []struct {
	name string
	on   func(*plan) bool
}{
	{"loss", func(p *plan) bool { return p.loss > 0 }},
	{"double", func(p *plan) bool { return p.double > 0 }},
	{"reorder", func(p *plan) bool { return p.reorder }},
	{"slow network", func(p *plan) bool { return p.latency > time.Millisecond }},
	{"revoke now", func(p *plan) bool { return p.revokeNow > 0 }},
}

// Kinds returns the names of all kinds of faults.
func Kinds() (all []string) {
	for _, s := range steady {
		all = append(all, s.name)
	}
	for _, f := range strikes {
		all = append(all, f.name)
	}
	return all
}

// faultNames lists the enabled kinds of faults.
func (p *plan) faultNames() []string {
	names := []string{}
	for _, s := range steady {
		if s.on(p) {
			names = append(names, s.name)
		}
	}
	for _, f := range p.faults {
		names = append(names, f.name)
	}
	return names
}
