package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client/session"
	"github.com/lockstep-dev/lockstep/lease"
)

// defaultGrace is what the service adds to a TTL, until the service reports it.
const defaultGrace = 500 * time.Millisecond

// tagsPerSession separates the tags of one client's sessions. A session has 2^40 requests.
const tagsPerSession = 1 << 40

// A Client is the native [lockstep.Locker], [lockstep.Inspector] and [lockstep.Watcher].
type Client struct {
	cfg   Config
	guard *guard
	admin *Admin // for reads

	life  context.Context // for the goroutines
	stop  context.CancelFunc
	tasks sync.WaitGroup

	wakeTimer chan struct{} // 1 token: the next tick is due earlier than planned
	wakeLink  chan struct{} // 1 token: a session wants a connection

	mu struct {
		sync.Mutex
		started bool
		closed  bool // once set, no claim is made

		sess       *session.Session // in which claims are made; nil if there is none
		checking   bool             // a query of the endpoints for their cluster is in progress
		generation uint64
		// revoked sessions are over, but their holders may not have stopped yet. They are kept for
		// the life of the connection, so that they can tell the service when they have.
		revoked   []*session.Session
		claims    map[uint64]*claim // of sess, by number, that someone in this client uses
		orphans   []*claim          // of the session that just ended, to be claimed again in the next one
		limited   []*lock           // held, with a MaxHold
		guests    []*Client         // clients of attached locks
		link      *link             // nil while not connected
		ticksAt   time.Duration     // when the timer goroutine wakes next
		downSince time.Duration     // since when no session has been attached; valid while !attached
		attached  bool
		lastErr   error // why there is no connection
		// superseded is set when another process attached the session and this one is attaching
		// again.
		superseded bool
		ttl        time.Duration
		grace      time.Duration
		events     []Event // to report once the mutex is released
	}
	over chan struct{} // closed when the session has ended after Close
}

var (
	_ lockstep.Locker    = (*Client)(nil)
	_ lockstep.Inspector = (*Client)(nil)
	_ lockstep.Watcher   = (*Client)(nil)
)

// New returns a Client. It starts nothing and does no I/O. A bad Config is
// [lockstep.ErrInvalid].
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	g := newGuard(cfg)
	c := &Client{
		cfg:       cfg,
		guard:     g,
		admin:     newAdmin(cfg, g),
		wakeTimer: make(chan struct{}, 1),
		wakeLink:  make(chan struct{}, 1),
		over:      make(chan struct{}),
	}
	c.life, c.stop = context.WithCancel(context.Background())
	c.mu.claims = make(map[uint64]*claim)
	c.mu.ttl, c.mu.grace = cfg.TTL, defaultGrace
	g.lose = c.loseSession
	return c, nil
}

// Cluster is the id of the cluster that the client belongs to; empty until a node has reported it.
func (c *Client) Cluster() string { return c.guard.cluster() }

// promises are the capabilities without TTL and Grace, which depend on the session.
var promises = lockstep.Capabilities{
	Backend:          "native",
	Fenced:           true,
	FIFO:             true,
	Shared:           true,
	Permits:          true,
	Multi:            true,
	LockDelay:        true,
	SurvivesFailover: true,
	Notes: []string{
		"A holder that pauses between checking and acting may act too late: let the protected resource check the token.",
		"Permits have no token.",
	},
}

// Capabilities reports what the service promises. TTL and Grace are the values granted to the last
// session, or the requested ones before the first.
func (c *Client) Capabilities() lockstep.Capabilities {
	out := promises
	out.Notes = slices.Clone(promises.Notes)
	c.mu.Lock()
	defer c.mu.Unlock()
	out.TTL, out.Grace = c.mu.ttl, c.mu.grace
	return out
}

// Close releases all locks in one step by ending the session, waits for the service to confirm it,
// and stops the client's goroutines. If ctx is done first, Close returns [lockstep.ErrUncertain],
// and whatever is left ends with its lease. If ctx is already done, Close waits for 5 s. Waiting
// calls of Acquire return [lockstep.ErrClosed]. A second Close returns nil when the first has
// returned.
func (c *Client) Close(ctx context.Context) error {
	ctx, done := lease.WithOwnTime(ctx)
	defer done()
	err := errors.Join(c.closeSession(ctx), c.closeGuests(ctx))
	c.stop()
	c.tasks.Wait()
	return errors.Join(err, c.admin.Close())
}

func (c *Client) closeSession(ctx context.Context) error {
	first := false
	c.do(func(now time.Duration) {
		if c.mu.closed {
			return
		}
		first, c.mu.closed = true, true
		for seq, k := range c.mu.claims {
			c.closeClaimLocked(seq, k)
		}
		if c.mu.sess == nil {
			close(c.over)
			return
		}
		c.mu.sess.Close(now)
	})
	select {
	case <-c.over:
		return nil
	case <-c.life.Done(): // another Close gave up
		return nil
	case <-ctx.Done():
		if !first {
			return nil
		}
		return &lockstep.OpError{Op: "close", Err: c.uncertain(ctx)}
	}
}

// closeClaimLocked notifies the caller or the holder of a claim that its client is closed.
func (c *Client) closeClaimLocked(seq uint64, k *claim) {
	if k.lock != nil {
		k.lock.finishLocked(lockstep.ErrReleased)
		return
	}
	delete(c.mu.claims, seq)
	k.fail(lockstep.ErrClosed)
}

// do runs f with the client's state and the current time, and then everything that follows from it.
// All changes of the state go through do.
func (c *Client) do(f func(now time.Duration)) {
	c.mu.Lock()
	f(c.cfg.Clock.Now())
	c.settleLocked()
	events := c.mu.events
	c.mu.events = nil
	c.mu.Unlock()
	for _, e := range events {
		c.cfg.Observer.Observe(e)
	}
}

// settleLocked sends what the sessions want to send and acts on their updates until
// there are none.
func (c *Client) settleLocked() {
	for _, s := range c.mu.revoked {
		requests, _ := s.Drain()
		c.sendLocked(requests)
	}
	for c.mu.sess != nil {
		s := c.mu.sess
		requests, updates := s.Drain()
		c.sendLocked(requests)
		if len(updates) == 0 {
			break
		}
		for _, u := range updates {
			c.actLocked(s, u)
		}
	}
	if c.nextTickLocked() < c.mu.ticksAt {
		wake(c.wakeTimer)
	}
}

// startLocked starts the goroutines, once.
func (c *Client) startLocked() {
	if c.mu.started {
		return
	}
	c.mu.started = true
	c.tasks.Go(c.watchLease)
	c.tasks.Go(c.keepConnected)
}

// openLocked opens a new session if there is none.
func (c *Client) openLocked(now time.Duration) {
	if c.mu.sess != nil {
		return
	}
	c.startLocked()
	c.mu.generation++
	c.mu.attached, c.mu.downSince = false, now
	c.mu.sess = session.New(session.Config{
		TTL:      c.cfg.TTL,
		Metadata: c.cfg.Metadata,
		FirstTag: c.mu.generation * tagsPerSession,
		Rand:     jitter,
	})
	if c.mu.link != nil {
		c.mu.sess.Connected(now)
		return
	}
	wake(c.wakeLink)
}

// wake leaves a token for a goroutine unless there already is one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
