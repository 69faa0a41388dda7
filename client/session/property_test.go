package session_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	pb "github.com/lockstep-dev/lockstep/api/lockstep/v1"
	"github.com/lockstep-dev/lockstep/client/internal/wirefake"
	"github.com/lockstep-dev/lockstep/client/session"
)

const (
	simTTL   = 2 * time.Second
	simGrace = 500 * time.Millisecond
)

// A world is a service, some clients and a network between them that delays, breaks and drops
// messages, on one simulated clock.
type world struct {
	t        *rapid.T
	now      time.Duration
	service  *wirefake.Service
	clients  []*client
	streams  int
	deadline map[string]time.Duration // of sessions, at the service
	closing  map[string]time.Duration // by name: when the service stops waiting for a revoked holder
	last     map[string]uint64        // the largest token handed out, by name
}

// A client is a session with its connection, and the updates it received.
type client struct {
	w    *world
	s    *session.Session
	conn *conn
	ends map[uint64]session.Kind // the last update of each claim
	had  map[uint64]bool         // granted
	name map[uint64]string
	mine []uint64 // claims that may still be acted on
	over bool
}

// A conn is a stream with the messages in flight in both directions. A cut one still accepts
// messages.
type conn struct {
	id       int
	cut      bool
	up, down []any
}

func newWorld(t *rapid.T, clients int) *world {
	w := &world{
		t:        t,
		service:  wirefake.New(),
		deadline: make(map[string]time.Duration),
		closing:  make(map[string]time.Duration),
		last:     make(map[string]uint64),
	}
	for range clients {
		w.clients = append(w.clients, w.newClient())
	}
	return w
}

func (w *world) newClient() *client {
	return &client{
		w:    w,
		s:    session.New(session.Config{TTL: simTTL}),
		ends: make(map[uint64]session.Kind),
		had:  make(map[uint64]bool),
		name: make(map[uint64]string),
	}
}

// act runs one call of the session, puts its requests on the connection and checks its updates.
func (c *client) act(f func(s *session.Session, now time.Duration)) {
	f(c.s, c.w.now)
	requests, updates := c.s.Drain()
	if c.conn != nil && !c.conn.cut {
		for _, r := range requests {
			c.conn.up = append(c.conn.up, r)
		}
	}
	for _, u := range updates {
		c.check(u)
	}
}

func (c *client) check(u session.Update) {
	t := c.w.t
	if c.over && u.Kind != session.Abandoned { // an Acquire that came too late
		t.Fatalf("update %v after the session was over", u.Kind)
	}
	switch u.Kind {
	case session.Over:
		c.over = true
	case session.Reconnect:
		c.drop()
	case session.Granted:
		name := c.name[u.Seq]
		if end, ended := c.ends[u.Seq]; ended || c.had[u.Seq] {
			t.Fatalf("claim %d granted after %v, or twice", u.Seq, end)
		}
		if !c.s.Valid(c.w.now) {
			t.Fatalf("claim %d handed out at %v, lease ended at %v", u.Seq, c.w.now, c.s.ValidUntil())
		}
		if u.Token <= c.w.last[name] {
			t.Fatalf("%s: token %d handed out after %d", name, u.Token, c.w.last[name])
		}
		c.w.last[name], c.had[u.Seq] = u.Token, true
	case session.Refused, session.Abandoned, session.Lost, session.Released:
		if end, ended := c.ends[u.Seq]; ended {
			t.Fatalf("claim %d ended as %v after it ended as %v", u.Seq, u.Kind, end)
		}
		c.ends[u.Seq] = u.Kind
	}
}

// connect opens a stream; drop breaks it and loses what is in flight.
func (c *client) connect() {
	c.drop()
	c.w.streams++
	c.conn = &conn{id: c.w.streams}
	c.act(func(s *session.Session, now time.Duration) { s.Connected(now) })
}

func (c *client) drop() {
	if c.conn == nil {
		return
	}
	c.w.service.Gone(c.conn.id)
	c.conn = nil
	c.act(func(s *session.Session, now time.Duration) { s.Disconnected(now) })
}

// toService delivers the oldest request of the client, if there is one.
func (c *client) toService() bool {
	if c.conn == nil || len(c.conn.up) == 0 {
		return false
	}
	r := c.conn.up[0].(*pb.ClientRequest)
	c.conn.up = c.conn.up[1:]
	if id := c.w.service.Handle(c.conn.id, r); id != "" {
		c.w.deadline[id] = c.w.now + simTTL + simGrace
	}
	c.w.collect()
	return true
}

// toClient delivers the oldest event for the client, if there is one.
func (c *client) toClient() bool {
	if c.conn == nil || len(c.conn.down) == 0 {
		return false
	}
	e := c.conn.down[0].(*pb.ServerEvent)
	c.conn.down = c.conn.down[1:]
	c.act(func(s *session.Session, now time.Duration) { s.Receive(now, e) })
	return true
}

func (w *world) collect() {
	for _, d := range w.service.Drain() {
		for _, c := range w.clients {
			if c.conn != nil && c.conn.id == d.Stream && !c.conn.cut {
				c.conn.down = append(c.conn.down, d.Event)
			}
		}
	}
}

// pass lets time pass: the service ends what has run out, and the clients tick.
func (w *world) pass(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.now += 50 * time.Millisecond
		for id, at := range w.deadline {
			if w.now > at {
				delete(w.deadline, id)
				w.service.Expire(id)
			}
		}
		for name, at := range w.closing {
			if w.now > at {
				delete(w.closing, name)
				w.service.EndDelay(name)
			}
		}
		w.collect()
		for _, c := range w.clients {
			c.act(func(s *session.Session, now time.Duration) { s.Tick(now) })
		}
		w.checkExclusion()
	}
}

// checkExclusion is the promise: at most one client trusts that it holds a name.
func (w *world) checkExclusion() {
	believers := make(map[string]string)
	for i, c := range w.clients {
		for seq, name := range c.name {
			token, held := c.s.Holds(w.now, seq)
			if !held {
				continue
			}
			me := fmt.Sprintf("client %d with token %d", i, token)
			if other, taken := believers[name]; taken {
				w.t.Fatalf("%s at %v: held by %s and %s", name, w.now, other, me)
			}
			believers[name] = me
		}
	}
}

func (w *world) acquire(c *client, name string, wait *uint64) {
	c.act(func(s *session.Session, now time.Duration) {
		seq := s.Acquire(now, &pb.ClaimSpec{Names: []string{name}, WaitMs: wait})
		c.name[seq] = name
		c.mine = append(c.mine, seq)
	})
}

func (w *world) revoke(name string) {
	if w.service.Revoke(name, "operator") {
		w.closing[name] = w.now + simTTL + simGrace
	}
	w.collect()
}

// settle ends the faults: everything is delivered and the clients reconnect.
func (w *world) settle() {
	for range 100 {
		for _, c := range w.clients {
			if c.conn == nil || c.conn.cut {
				c.connect()
			}
		}
		for busy := true; busy; {
			busy = false
			for _, c := range w.clients {
				busy = c.toService() || busy
				busy = c.toClient() || busy
			}
		}
		w.pass(100 * time.Millisecond)
	}
}

func TestWhateverTheNetworkDoesALockHasOneBelieverAndNothingIsLeftOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 3)
		names := []string{"a", "b"}
		anyone := func(t *rapid.T) *client { return rapid.SampledFrom(w.clients).Draw(t, "client") }
		one := func(t *rapid.T, c *client) (seq uint64, ok bool) {
			if len(c.mine) == 0 {
				return 0, false
			}
			return rapid.SampledFrom(c.mine).Draw(t, "claim"), true
		}
		try := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"":        func(*rapid.T) { w.checkExclusion() },
			"connect": func(t *rapid.T) { anyone(t).connect() },
			"break":   func(t *rapid.T) { anyone(t).drop() },
			"cut": func(t *rapid.T) {
				if c := anyone(t); c.conn != nil {
					c.conn.cut, c.conn.up, c.conn.down = true, nil, nil
				}
			},
			"acquire": func(t *rapid.T) { w.acquire(anyone(t), rapid.SampledFrom(names).Draw(t, "name"), nil) },
			"try":     func(t *rapid.T) { w.acquire(anyone(t), rapid.SampledFrom(names).Draw(t, "name"), &try) },
			"cancel": func(t *rapid.T) {
				c := anyone(t)
				if seq, ok := one(t, c); ok {
					c.act(func(s *session.Session, now time.Duration) { s.Cancel(now, seq) })
				}
			},
			"release": func(t *rapid.T) {
				c := anyone(t)
				if seq, ok := one(t, c); ok {
					c.act(func(s *session.Session, now time.Duration) { s.Release(now, seq) })
				}
			},
			"revoke":  func(t *rapid.T) { w.revoke(rapid.SampledFrom(names).Draw(t, "name")) },
			"endWait": func(t *rapid.T) { w.service.EndWait(rapid.SampledFrom(names).Draw(t, "name")); w.collect() },
			"up":      func(t *rapid.T) { anyone(t).toService() },
			"down":    func(t *rapid.T) { anyone(t).toClient() },
			"exchange": func(t *rapid.T) {
				for c := anyone(t); c.toService() || c.toClient(); {
				}
			},
			"pass": func(t *rapid.T) {
				w.pass(time.Duration(rapid.IntRange(1, 30).Draw(t, "tenths")) * 100 * time.Millisecond)
			},
			"again": func(*rapid.T) { w.replaceEnded() },
		})
		w.finish()
	})
}

// replaceEnded gives clients whose session is over a new one, as the shell does.
func (w *world) replaceEnded() {
	for i, c := range w.clients {
		if c.over && len(w.clients) < 8 {
			c.drop()
			w.clients[i] = w.newClient()
		}
	}
}

// finish stops the faults and ends every claim. After that the service must know no claims, and
// every claim must have received its final update.
func (w *world) finish() {
	w.settle()
	for _, c := range w.clients {
		for _, seq := range c.mine {
			c.act(func(s *session.Session, now time.Duration) { s.Release(now, seq) })
		}
	}
	w.settle()
	for i, c := range w.clients {
		for _, seq := range c.mine {
			if _, ended := c.ends[seq]; !ended {
				w.t.Fatalf("client %d: claim %d was never told its end", i, seq)
			}
		}
		if !c.over && c.s.Claims() != 0 {
			w.t.Fatalf("client %d: %d claims are left", i, c.s.Claims())
		}
		if !c.over && c.s.Floor() != uint64(len(c.mine))+1 {
			w.t.Fatalf("client %d: the floor is %d after %d claims that are over", i, c.s.Floor(), len(c.mine))
		}
	}
	if _, claims := w.service.Live(); claims != 0 {
		w.t.Fatalf("the service still has %d claims", claims)
	}
}
