package sim

import (
	"fmt"
	"slices"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/server/command"
	"github.com/lockstep-dev/lockstep/server/lead"
	"github.com/lockstep-dev/lockstep/server/protocol"
)

// A caller is a program without our library: it makes unary calls like curl, lets the service
// number its claims, and is careless about when it renews. It holds several locks at once, and
// acquires and releases many between two renewals. It does keep the rule of when a lease is over,
// and what docs/api.md says about seen, nonce and floor.
type caller struct {
	operator // its calls
	clock    clock
	life     int

	ttl    time.Duration
	id     command.SessionID
	secret []byte
	number uint64
	seen   uint64
	until  time.Duration // on its clock: the lease may be believed in before this time
	held   []command.ClaimStatus
	// gone has claims that a keepalive reported as over: a later answer does not revive them.
	gone   map[uint64]bool
	hands  int // locks that it holds, or asks for, at a time
	nonces int
	asking int    // number of Acquires that it may repeat
	top    uint64 // highest seq that it has received
	floor  uint64 // it has let go of its nonces below
}

func newCaller(w *world, index, machine int) *caller {
	name := fmt.Sprintf("caller %d", index)
	return &caller{
		operator: operator{w: w, machine: machine, rnd: stream(w.opts.Seed, name)},
		clock:    newClock(stream(w.opts.Seed, name+" clock")),
		hands:    pick(stream(w.opts.Seed, name+" hands"), 1, 3, 6),
	}
}

func (c *caller) String() string       { return fmt.Sprintf("caller %d.%d", c.machine, c.life) }
func (c *caller) local() time.Duration { return c.clock.read(c.w.now) }

// then calls f after d in the current session, unless the run is in its calm.
func (c *caller) then(d time.Duration, f func()) {
	life := c.life
	c.w.after(d, func() {
		if c.life == life && !c.w.calm {
			f()
		}
	})
}

// open opens a new session, with as many attempts as it takes.
func (c *caller) open() {
	c.life++
	c.id, c.held, c.seen, c.number, c.until = command.SessionID{}, nil, 0, 0, 0
	c.asking, c.top, c.floor, c.gone = 0, 0, 0, map[uint64]bool{}
	c.ttl = c.w.plan.ttl(c.rnd)
	sent, local := c.w.now, c.local()
	req, _ := protocol.FromOpenSession(&pb.OpenSessionRequest{TtlMs: uint64(c.ttl.Milliseconds())}, c.w.secrets)
	life := c.life
	c.ask(req, func(a lead.Answer) bool {
		o, ok := a.(lead.Opened)
		if !ok || c.life != life {
			return true
		}
		c.id, c.secret = o.Session, o.Secret[:]
		c.w.note("%v opens %v", c, c.id)
		c.w.check(c.w.book.Opened(c.id))
		c.renewed(sent, local)
		c.then(c.rnd.between(0, c.ttl), c.renew)
		for range c.hands {
			c.then(c.rnd.about(c.w.plan.think), c.acquire)
		}
		return true
	})
	c.then(callTimeout, func() {
		if c.id == (command.SessionID{}) {
			c.open()
		}
	})
}

// ask sends a request to a node that may lead.
func (c *caller) ask(r lead.Request, answer func(lead.Answer) bool) {
	c.call(c.target(), r, callTimeout, answer)
}

func (c *caller) renewed(sent, local time.Duration) {
	c.w.book.Renewed(c.id, sent, c.ttl)
	c.until = max(c.until, local+c.ttl-lease.Margin(c.ttl))
}

// renew sends a keepalive, sometimes long after the lease is over.
func (c *caller) renew() {
	c.number++
	sent, local, life := c.w.now, c.local(), c.life
	req, _ := protocol.FromKeepAlive(&pb.KeepAliveRequest{Session: c.id.String(), Secret: c.secret, Number: c.number, Seen: c.seen})
	c.ask(req, func(a lead.Answer) bool {
		if c.life != life {
			return true
		}
		switch a := a.(type) {
		case lead.Kept:
			c.w.count(callerRenewed)
			c.learn(a)
			c.renewed(sent, local)
			c.w.believes(c)
		case lead.Refused:
			c.refused(a)
		}
		return true
	})
	pause := c.rnd.between(c.ttl/10, c.ttl/2)
	switch {
	case c.rnd.chance(0.2):
		pause = c.rnd.between(0, c.ttl*5/4+time.Second)
	case c.rnd.chance(0.2): // about when the service ends the session
		pause = c.ttl + 500*time.Millisecond + c.rnd.between(0, 100*time.Millisecond)
	}
	c.then(pause, c.renew)
}

// learn processes the changes that an answer carries before the lease moves.
func (c *caller) learn(a lead.Kept) {
	for _, s := range a.Changes {
		c.w.check(c.w.book.Told(c.id, s))
		if s.State.Final() {
			c.gone[s.Seq] = true
			c.drop(s.Seq)
		}
	}
	c.seen = max(c.seen, a.Change)
}

func (c *caller) refused(a lead.Refused) {
	if a.Reason != lead.RefusedByMachine {
		return
	}
	switch a.Code {
	case command.SessionExpired, command.SessionUnknown, command.SessionRevoked:
		c.w.check(c.w.book.Ended(c.id))
		c.open()
	}
}

// drop ends the belief in a claim.
func (c *caller) drop(seq uint64) {
	c.held = slices.DeleteFunc(c.held, func(s command.ClaimStatus) bool { return s.Seq == seq })
}

// acquire asks for one lock, and repeats the call with the same nonce when no answer arrives.
func (c *caller) acquire() {
	c.nonces++
	if c.asking == 0 {
		c.floor = c.top + 1
	}
	c.asking++
	wait := uint64(c.rnd.skewed(10*time.Millisecond, 5*time.Second).Milliseconds())
	r := &pb.AcquireRequest{
		Session: c.id.String(), Secret: c.secret, Nonce: fmt.Sprintf("n%d", c.nonces), Seen: c.seen, Floor: c.floor,
		Spec: &pb.ClaimSpec{Names: []string{c.w.lockName(c.rnd.IntN(c.w.plan.names))}, WaitMs: &wait},
	}
	if c.rnd.chance(0.5) { // a call that is not repeated needs none
		r.Nonce = ""
		c.try(r, 1)
		return
	}
	c.try(r, 3)
}

func (c *caller) try(r *pb.AcquireRequest, tries int) {
	req, _ := protocol.FromAcquire(r)
	life, over := c.life, false
	patience := c.rnd.skewed(20*time.Millisecond, callTimeout)
	end := func() bool {
		if !over {
			over = true
			c.asking--
			c.then(c.rnd.about(c.w.plan.think), c.acquire)
		}
		return true
	}
	c.call(c.target(), req, patience, func(a lead.Answer) bool {
		if c.life != life || over {
			return true
		}
		var s command.ClaimStatus
		switch a := a.(type) {
		case lead.Claimed:
			s = a.Claim
		case lead.Changed:
			s = a.Claim
		case lead.Refused:
			c.refused(a)
			return c.life != life || end()
		}
		c.w.check(c.w.book.Told(c.id, s))
		c.top = max(c.top, s.Seq)
		switch {
		case c.gone[s.Seq]:
			return end()
		case s.State == command.Granted:
			over = true
			c.asking--
			c.hold(s)
		case s.State.Final():
			return end()
		}
		return s.State != command.Queued
	})
	c.then(patience, func() {
		switch {
		case over:
		case tries > 1:
			over = true
			c.w.count(callRepeated)
			c.try(r, tries-1)
		default:
			end()
		}
	})
}

// hold works under the lock and releases it.
func (c *caller) hold(s command.ClaimStatus) {
	c.w.grants++
	c.held = append(c.held, s)
	c.w.believes(c)
	work := c.rnd.skewed(10*time.Millisecond, 4*time.Second)
	if c.rnd.chance(0.2) {
		work = c.rnd.between(0, c.w.plan.hold)
	}
	c.then(work, func() {
		c.drop(s.Seq)
		req, _ := protocol.FromRelease(&pb.ReleaseRequest{Session: c.id.String(), Secret: c.secret, Seq: s.Seq, Token: uint64(s.Token)})
		c.ask(req, func(lead.Answer) bool { return true })
		c.then(c.rnd.about(c.w.plan.think), c.acquire)
	})
}

// believes checks what a caller believes at this moment against what the service granted.
func (w *world) believes(c *caller) {
	for _, s := range c.held {
		if id := (command.ClaimID{Session: c.id, Seq: s.Seq}); c.local() < c.until {
			w.check(w.book.Believed(id, s.Token))
			w.check(w.book.Unaware(id, c.seen))
		}
	}
}
