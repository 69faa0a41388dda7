package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client/session"
)

// ownTime is how long Release and Close go on when their context is done already.
const ownTime = 5 * time.Second

// defaultGrace is what the service adds to a TTL, until it says so itself.
const defaultGrace = 500 * time.Millisecond

// tagsPerSession keeps the tags of the sessions of one client apart. A session
// has 2^40 requests.
const tagsPerSession = 1 << 40

// A Client is the native [lockstep.Locker], [lockstep.Inspector] and [lockstep.Watcher].
type Client struct {
	cfg   Config
	guard *guard
	admin *Admin // for reads

	life  context.Context // of the goroutines
	stop  context.CancelFunc
	tasks sync.WaitGroup

	wakeTimer chan struct{} // 1 token: the next tick is due sooner than was thought
	wakeLink  chan struct{} // 1 token: a session wants a connection

	mu struct {
		sync.Mutex
		started bool
		closed  bool // no claim is made after it is set

		sess       *session.Session // that claims are made in; nil when there is none
		checking   bool             // the endpoints are asked for their cluster
		generation uint64
		// revoked sessions are over, but their holders may not have stopped yet. They
		// are kept as long as the connection, on which they can tell the service.
		revoked   []*session.Session
		claims    map[uint64]*claim // of sess, by number, that somebody here cares about
		orphans   []*claim          // of the session that just ended, to be claimed again
		limited   []*lock           // held, with a bound of their own
		guests    []*Client         // of attached locks
		link      *link             // nil while not connected
		ticksAt   time.Duration     // when the timer goroutine wakes next
		downSince time.Duration     // since when no session was attached; of use while !attached
		attached  bool
		lastErr   error // why there is no connection
		// superseded: another process attached the session, and this one attaches again.
		superseded bool
		ttl        time.Duration
		grace      time.Duration
		events     []Event // to be told when the mutex is free
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

// Cluster is the id of the cluster that the client belongs to; empty before a node has told it.
func (c *Client) Cluster() string { return c.guard.cluster() }

// promises are the capabilities but for TTL and Grace, which are those of a session.
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
		"A holder that is paused between checking and acting may act late: let the protected resource check the token.",
		"Permits have no token.",
	},
}

// Capabilities says what the service promises. TTL and Grace are as granted to the
// last session, and before the first one as asked for.
func (c *Client) Capabilities() lockstep.Capabilities {
	out := promises
	out.Notes = slices.Clone(promises.Notes)
	c.mu.Lock()
	defer c.mu.Unlock()
	out.TTL, out.Grace = c.mu.ttl, c.mu.grace
	return out
}

// Close releases all locks in one step by ending the session, waits until the
// service has confirmed it, and stops the goroutines of the client. When ctx is
// done first, or already (it then waits for 5 s), Close returns
// [lockstep.ErrUncertain]: what is left ends with its lease. Waiting calls of Acquire return
// [lockstep.ErrClosed]. A second Close returns when the first has, with nil.
func (c *Client) Close(ctx context.Context) error {
	ctx, done := withOwnTime(ctx)
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

// closeClaimLocked tells the caller or the holder of a claim that its client is closed.
func (c *Client) closeClaimLocked(seq uint64, k *claim) {
	if k.lock != nil {
		k.lock.finishLocked(lockstep.ErrReleased)
		return
	}
	delete(c.mu.claims, seq)
	k.fail(lockstep.ErrClosed)
}

// do runs f with the client's state and the present time, and then does all that
// follows from it. Everything that changes the state goes through here.
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

// openLocked begins a new session if there is none.
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

// wake leaves a token for a goroutine, unless one is there.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// withOwnTime gives a call whose context is done already some time of its own.
func withOwnTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), ownTime)
}
