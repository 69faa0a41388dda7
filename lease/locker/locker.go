package locker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// Config configures the Locker of a backend.
type Config struct {
	// Capabilities are those of the backend, with the TTL as negotiated.
	Capabilities lockstep.Capabilities
	// UnavailableAfter is how long Acquire keeps trying a store that does not answer before it
	// returns [lockstep.ErrUnavailable]. Default: the TTL, limited to 5 s to 15 s.
	UnavailableAfter time.Duration
	// RetryBase and RetryMax bound the jittered wait between two tries of a backend of records.
	// Default: 25 ms and 500 ms.
	RetryBase, RetryMax time.Duration
	// Clock measures leases. Default: [lease.SystemClock].
	Clock lease.Clock
	// Logger receives the log. Default: [slog.DiscardHandler].
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	ttl := c.Capabilities.TTL
	c.UnavailableAfter = cmp.Or(c.UnavailableAfter, lease.Patience(ttl))
	c.RetryBase = cmp.Or(c.RetryBase, 25*time.Millisecond)
	c.RetryMax = max(cmp.Or(c.RetryMax, 500*time.Millisecond), c.RetryBase)
	if c.Clock == nil {
		c.Clock = lease.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// A Locker hands out the locks of a backend. It implements [lockstep.Locker].
type Locker struct {
	cfg     Config
	backend Backend
	renewer Renewer // nil on a backend of sessions

	life    context.Context // done when Close begins
	endLife context.CancelCauseFunc
	work    context.Context // for background work; done when Close gives up
	endWork context.CancelFunc
	calls   sync.WaitGroup // of Acquire and the like
	group   sync.WaitGroup // background work
	closing sync.Once
	closed  chan struct{} // closed at the end of Close

	mu struct {
		sync.Mutex
		isClosing bool // once set, no call is admitted
		isClosed  bool // once set, nothing joins the group
		locks     map[*lock]struct{}
		closeErr  error
	}
}

var _ lockstep.Locker = (*Locker)(nil)

// New makes a Locker from a backend. It panics if [lease.Check] refuses the TTL of the
// capabilities: backends check what users pass.
func New(backend Backend, cfg Config) *Locker {
	cfg = cfg.withDefaults()
	if err := lease.Check(cfg.Capabilities.TTL); err != nil {
		panic(err)
	}
	l := &Locker{cfg: cfg, backend: backend, closed: make(chan struct{})}
	l.renewer, _ = backend.(Renewer)
	l.life, l.endLife = context.WithCancelCause(context.Background())
	l.work, l.endWork = context.WithCancel(context.Background())
	l.mu.locks = map[*lock]struct{}{}
	return l
}

// Capabilities implements [lockstep.Locker].
func (l *Locker) Capabilities() lockstep.Capabilities { return l.cfg.Capabilities }

// Acquire implements [lockstep.Locker].
func (l *Locker) Acquire(ctx context.Context, name string, opts ...lockstep.AcquireOption) (lockstep.Lock, error) {
	lock, err := l.acquire(ctx, name, opts)
	if err != nil {
		return nil, &lockstep.OpError{Op: "acquire", Lock: name, Err: err}
	}
	return lock, nil
}

func (l *Locker) acquire(ctx context.Context, name string, opts []lockstep.AcquireOption) (*lock, error) {
	cfg, err := lockstep.ResolveAcquire(l.cfg.Capabilities, name, opts...)
	if err != nil {
		return nil, err
	}
	if !l.enter() {
		return nil, lockstep.ErrClosed
	}
	defer l.calls.Done()
	return newAcquisition(l, cfg).run(ctx)
}

// enter admits a call unless Close has begun. The call ends with calls.Done.
func (l *Locker) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.isClosing {
		l.calls.Add(1)
	}
	return !l.mu.isClosing
}

// do runs f in the background. Only admitted calls and held locks use it.
func (l *Locker) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.isClosed {
		l.group.Go(f)
	}
}

// Close implements [lockstep.Locker]. Locks that cannot be released before ctx is done are left to
// their leases. So are locks not released after TTL plus grace, whatever ctx says, since by then
// the leases have run out.
func (l *Locker) Close(ctx context.Context) error {
	l.closing.Do(func() {
		defer close(l.closed)
		ctx, done := lease.WithOwnTime(ctx)
		defer done()
		ctx, cancel := context.WithTimeout(ctx, l.cfg.Capabilities.TTL+l.cfg.Capabilities.Grace)
		defer cancel()
		l.mu.Lock()
		l.mu.isClosing = true
		l.mu.Unlock()
		l.endLife(lockstep.ErrClosed)
		l.calls.Wait() // no call continues after life ends
		err := l.releaseAll(ctx)
		l.awaitWork(ctx)
		l.mu.closeErr = errors.Join(err, l.backend.Close(ctx))
	})
	<-l.closed
	return l.mu.closeErr
}

// releaseAll frees all locks at once and joins the errors.
func (l *Locker) releaseAll(ctx context.Context) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	for _, k := range l.held() {
		group.Go(func() {
			if err := k.Release(ctx); err != nil && !errors.Is(err, lockstep.ErrLost) {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}

func (l *Locker) held() (locks []*lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.mu.locks {
		locks = append(locks, k)
	}
	return locks
}

// awaitWork waits for background work, and cancels it when ctx is done.
func (l *Locker) awaitWork(ctx context.Context) {
	l.mu.Lock()
	l.mu.isClosed = true
	l.mu.Unlock()
	stop := context.AfterFunc(ctx, l.endWork)
	defer stop()
	l.group.Wait()
	l.endWork()
}

// newID generates the identity of a claim.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}
