package sim

import (
	"fmt"
	"time"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client/session"
	"github.com/lockstep-dev/lockstep/server/command"
)

// A client is one process that uses locks, on a machine of its own: the real session, and the shell
// of a simulated program around it.
type client struct {
	w       *world
	machine int
	clock   clock
	rnd     random // of its work
	net     random // of its connections
	ttl     time.Duration

	life   int
	alive  bool
	paused bool
	inbox  []func()

	sess    *session.Session
	id      command.SessionID // zero until opened
	granted time.Duration     // the TTL that the service granted
	conn    *conn
	dialing bool
	next    int // node to try next
	wait    time.Duration
	sentAt  map[uint64]time.Duration // true time at which each keepalive was sent, by number
	opens   map[uint64]time.Duration // the same for Open, by tag
	tickAt  time.Duration            // 0: none
	jobs    []*job
	served  func() // called with every grant; may be nil
}

func newClient(w *world, index, machine int) *client {
	name := fmt.Sprintf("client %d", index)
	c := &client{
		w: w, machine: machine, clock: newClock(stream(w.opts.Seed, name+" clock")),
		rnd: stream(w.opts.Seed, name+" work"), net: stream(w.opts.Seed, name+" net"),
	}
	c.ttl = w.plan.ttl(c.rnd)
	return c
}

func (c *client) local() time.Duration { return c.clock.read(c.w.now) }
func (c *client) String() string       { return fmt.Sprintf("client %d.%d", c.machine, c.life) }

// start is a new process with a new session.
func (c *client) start() {
	c.life++
	c.alive, c.paused, c.inbox = true, false, nil
	c.renew()
	c.w.after(c.rnd.about(c.w.plan.think), c.work(c.life))
}

// renew replaces the session by a new one. The end of the old one was reported.
func (c *client) renew() {
	c.sess = session.New(session.Config{TTL: c.ttl, Rand: c.net.Float64, Metadata: map[string]string{"host": "sim"}})
	c.id, c.jobs = command.SessionID{}, nil
	c.sentAt, c.opens = map[uint64]time.Duration{}, map[uint64]time.Duration{}
	c.drop()
	c.connect()
}

// deliver hands something to the process, now or when it runs again.
func (c *client) deliver(f func()) {
	switch {
	case !c.alive:
	case c.paused:
		c.inbox = append(c.inbox, f)
	default:
		f()
		c.pump()
	}
}

// after calls f after d, if the current process is still alive by then.
func (c *client) after(d time.Duration, f func()) {
	life := c.life
	c.w.after(d, func() {
		if c.life == life {
			c.deliver(f)
		}
	})
}

// drop closes the connection.
func (c *client) drop() {
	if c.conn != nil {
		c.conn.hangUp()
		c.conn = nil
	}
}

// connect looks for a node that leads, with growing pauses between attempts.
func (c *client) connect() {
	if c.dialing || c.conn != nil || !c.alive || c.sess.IsOver() {
		return
	}
	c.dialing = true
	life, sess := c.life, c.sess
	n := c.w.nodes[c.next]
	c.next = c.net.IntN(len(c.w.nodes))
	pause := c.wait/2 + c.net.between(0, c.wait/2+1)
	c.wait = min(2*c.wait+10*time.Millisecond, 800*time.Millisecond)
	c.w.after(pause, func() {
		if c.life != life {
			return
		}
		c.dial(n, func(k *conn) { c.dialed(life, sess, k) }, func() {
			if c.life == life {
				c.dialing = false
				c.deliver(func() { c.connect() })
			}
		})
	})
}

func (c *client) dialed(life int, sess *session.Session, k *conn) {
	if c.life != life {
		k.hangUp()
		return
	}
	c.dialing = false
	c.deliver(func() {
		if c.sess != sess || c.conn != nil || !k.open {
			k.hangUp()
			c.connect()
			return
		}
		c.conn = k
		c.sess.Connected(c.local())
	})
}

// hungUp handles the end of a connection that the client did not want.
func (c *client) hungUp(k *conn) {
	if c.conn != k {
		return
	}
	c.conn = nil
	c.sess.Disconnected(c.local())
	c.connect()
}

// event handles what the node sent.
func (c *client) event(k *conn, e *pb.ServerEvent) {
	if c.conn != k {
		return
	}
	c.observe(e)
	if !c.w.failed() {
		c.sess.Receive(c.local(), e)
	}
}

// observe checks what the service says against the log.
func (c *client) observe(e *pb.ServerEvent) {
	id := sessionID(e.GetSession())
	book := c.w.book
	switch b := e.GetBody().(type) {
	case *pb.ServerEvent_Opened:
		c.w.check(book.Opened(id))
		if at, ok := c.opens[e.GetTag()]; ok {
			c.granted = time.Duration(b.Opened.GetTtlMs()) * time.Millisecond
			book.Renewed(id, at, c.granted)
		}
	case *pb.ServerEvent_Kept:
		if at, ok := c.sentAt[b.Kept.GetNumber()]; ok && id == c.id {
			book.Renewed(id, at, c.granted)
		}
	case *pb.ServerEvent_Claim:
		c.w.check(book.Told(id, status(b.Claim)))
	case *pb.ServerEvent_Change:
		c.w.check(book.Told(id, status(b.Change)))
	case *pb.ServerEvent_Ended:
		c.w.check(book.Ended(id))
	case *pb.ServerEvent_Error:
		switch b.Error.GetReason() {
		case pb.Reason_REASON_SESSION_EXPIRED, pb.Reason_REASON_SESSION_UNKNOWN:
			c.w.check(book.Ended(id))
		}
		c.w.count("refused: " + b.Error.GetReason().String()[len("REASON_"):])
	}
}

func status(s *pb.ClaimStatus) command.ClaimStatus {
	return command.ClaimStatus{Seq: s.GetSeq(), State: command.State(s.GetState()), Token: command.Token(s.GetToken())}
}

// pump carries out what the session wants until it wants nothing more.
func (c *client) pump() {
	for !c.w.failed() {
		requests, updates := c.sess.Drain()
		if len(requests) == 0 && len(updates) == 0 {
			break
		}
		if c.conn != nil {
			c.stamp(requests)
			c.conn.send(requests)
		}
		for i := range updates {
			c.update(&updates[i])
		}
	}
	c.plan()
}

// stamp records when renewals are sent.
func (c *client) stamp(rs []*pb.ClientRequest) {
	for _, r := range rs {
		switch b := r.GetBody().(type) {
		case *pb.ClientRequest_KeepAlive:
			c.sentAt[b.KeepAlive.GetNumber()] = c.w.now
		case *pb.ClientRequest_Open:
			c.opens[r.GetTag()] = c.w.now
		}
	}
}

// plan schedules the session's tick for when it wants one.
func (c *client) plan() {
	due := c.clock.when(c.sess.NextTick())
	if due > c.w.now+time.Hour || c.tickAt != 0 && c.tickAt <= due && c.tickAt > c.w.now {
		return
	}
	due = max(due, c.w.now+time.Microsecond)
	c.tickAt = due
	life := c.life
	c.w.at(due, func() {
		if c.life == life && c.tickAt == due {
			c.tickAt = 0
			c.deliver(func() { c.sess.Tick(c.local()) })
		}
	})
}

// pause stops the process; its clock runs on.
func (c *client) pause() { c.paused = true }

func (c *client) resume() {
	if !c.alive || !c.paused {
		return
	}
	c.paused = false
	inbox := c.inbox
	c.inbox = nil
	if c.rnd.chance(0.5) { // the program sees its timers before or after its sockets
		c.deliver(func() { c.sess.Tick(c.local()) })
	}
	for _, f := range inbox {
		c.deliver(f)
	}
	c.deliver(func() { c.sess.Tick(c.local()) })
}

// die ends the process. Its host closes the connection, or is gone as well.
func (c *client) die() {
	if !c.alive {
		return
	}
	c.w.count(clientDied)
	c.w.note("%v dies", c)
	c.alive, c.inbox, c.jobs = false, nil, nil
	c.life++
	c.dialing = false
	if k := c.conn; k != nil {
		c.conn = nil
		if c.rnd.chance(0.5) {
			k.hangUp()
		} else {
			k.open, k.deaf = false, true
		}
	}
}
