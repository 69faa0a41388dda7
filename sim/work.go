package sim

import (
	"fmt"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client/session"
	"github.com/lockstep-dev/lockstep/server/command"
)

// A job is one claim of a client from its Acquire to its end.
type job struct {
	seq     uint64
	names   []string
	token   uint64
	holding bool
	asked   time.Duration // true time
}

// maxJobs bounds the claims of a client at a time.
const maxJobs = 6

// work begins jobs from time to time as long as the process lives.
func (c *client) work(life int) func() {
	return func() {
		if c.life != life || c.w.calm {
			return
		}
		if !c.paused && len(c.jobs) < maxJobs && !c.sess.IsOver() {
			c.deliver(c.begin)
		}
		c.w.after(c.rnd.about(c.w.plan.think), c.work(life))
	}
}

// begin asks for a lock, or sometimes closes the whole session.
func (c *client) begin() {
	if c.rnd.chance(0.01) && c.sess.Claims() == len(c.jobs) {
		c.w.note("%v closes its session", c)
		c.sess.Close(c.local())
		return
	}
	c.ask(c.spec())
	if c.rnd.chance(0.15) {
		j := c.jobs[len(c.jobs)-1]
		c.after(c.rnd.skewed(100*time.Microsecond, time.Second), func() {
			c.w.count(cancelSent)
			c.sess.Cancel(c.local(), j.seq)
		})
	}
}

func (c *client) ask(spec *pb.ClaimSpec) *job {
	j := &job{names: spec.Names, asked: c.w.now}
	c.jobs = append(c.jobs, j)
	j.seq = c.sess.Acquire(c.local(), spec)
	c.w.note("%v asks for %q as %d, mode %d", c, spec.Names, j.seq, spec.Mode)
	return j
}

// spec draws what to ask for.
func (c *client) spec() *pb.ClaimSpec {
	r, p := c.rnd, &c.w.plan
	s := &pb.ClaimSpec{Names: []string{c.w.lockName(r.IntN(p.names))}}
	switch {
	case r.chance(p.shared):
		s.Mode = pb.Mode_MODE_SHARED
	case r.chance(p.permits):
		s.Mode, s.Capacity = pb.Mode_MODE_PERMITS, 3
		s.Weight = 1 + uint32(r.IntN(3))
		if !r.chance(0.05) { // else a semaphore under the name of a lock
			s.Names[0] = fmt.Sprintf("t/permits%d", r.IntN(2))
		}
	case p.names > 1 && r.chance(p.multi):
		first := r.IntN(p.names)
		for i := range 1 + r.IntN(min(3, p.names-1)) {
			s.Names = append(s.Names, c.w.lockName((first+i+1)%p.names))
		}
		s.Names[0] = c.w.lockName(first)
	}
	if r.chance(p.bounded) {
		wait := uint64(0)
		if r.chance(0.6) {
			wait = uint64(r.skewed(20*time.Millisecond, 6*time.Second).Milliseconds())
		}
		s.WaitMs = &wait
	}
	if r.chance(p.lockDelay) {
		s.LockDelayMs = uint64(r.skewed(100*time.Millisecond, 5*time.Second).Milliseconds())
	}
	return s
}

func (c *client) job(seq uint64) *job {
	for _, j := range c.jobs {
		if j.seq == seq {
			return j
		}
	}
	return nil
}

func (c *client) finished(seq uint64) {
	for i, j := range c.jobs {
		if j.seq == seq {
			c.jobs = append(c.jobs[:i], c.jobs[i+1:]...)
			return
		}
	}
}

// update does what a program does when its session reports something.
func (c *client) update(u *session.Update) {
	c.w.note("%v: %v %d token %d %s", c, u.Kind, u.Seq, u.Token, u.Detail)
	switch u.Kind {
	case session.Opened:
		c.id = sessionID(c.sess.ID())
		c.wait = 0
	case session.Resumed:
		c.wait = 0
	case session.Renewed:
		c.w.beliefs(c)
	case session.Granted:
		c.holds(u)
	case session.Lost:
		c.stop(u)
	case session.Refused, session.Abandoned, session.Released:
		c.finished(u.Seq)
	case session.Reconnect:
		c.elsewhere(u.Leader)
	case session.Over:
		c.over(u)
	}
}

// holds does the work of a granted job and releases the lock.
func (c *client) holds(u *session.Update) {
	j := c.job(u.Seq)
	if j == nil {
		return
	}
	j.holding, j.token = true, u.Token
	c.w.grants++
	if c.served != nil {
		c.served()
	}
	c.w.beliefs(c)
	hold := c.rnd.skewed(2*time.Millisecond, time.Second)
	if c.rnd.chance(c.w.plan.holders) {
		hold = c.rnd.between(0, c.w.plan.hold)
	}
	if c.w.calm {
		hold = min(hold, 100*time.Millisecond)
	}
	c.after(hold, func() { c.release(j) })
}

func (c *client) release(j *job) {
	j.holding = false
	c.sess.Release(c.local(), j.seq)
}

// stop ends the work of a lost job. How long that takes is up to the program; only then does it
// confirm.
func (c *client) stop(u *session.Update) {
	c.w.count("lost: " + u.Reason.String())
	sess, seq := c.sess, u.Seq
	if j := c.job(seq); j != nil {
		j.holding = false
	}
	c.finished(seq)
	c.after(c.rnd.skewed(time.Millisecond, 3*time.Second), func() {
		if c.sess == sess {
			c.sess.Release(c.local(), seq)
		}
	})
}

// elsewhere connects to another node: the leader, if it was named.
func (c *client) elsewhere(leader string) {
	for i := range c.w.nodes {
		if leader == nodeName(i) {
			c.next, c.wait = i, c.wait/2
		}
	}
	c.drop()
	c.sess.Disconnected(c.local())
	c.connect()
}

// over begins a new session a little later, when the program has stopped its work under the old
// one.
func (c *client) over(u *session.Update) {
	if u.Reason != 0 {
		c.w.count("session over: " + u.Reason.String())
	}
	sess := c.sess
	c.after(c.rnd.skewed(time.Millisecond, time.Second), func() {
		if c.sess == sess {
			c.renew()
		}
	})
}

// beliefs checks what a client believes at this moment against what the service granted.
func (w *world) beliefs(c *client) {
	if !c.alive || c.id == (command.SessionID{}) {
		return
	}
	for _, j := range c.jobs {
		if !j.holding {
			continue
		}
		if token, held := c.sess.Holds(c.local(), j.seq); held {
			id := command.ClaimID{Session: c.id, Seq: j.seq}
			w.check(w.book.Believed(id, command.Token(token)))
			w.check(w.book.Unaware(id, c.sess.Seen()))
		}
	}
}
