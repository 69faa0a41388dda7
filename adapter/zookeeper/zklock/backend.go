package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
	"github.com/lockstep-dev/lockstep/lease/locker"
)

// backend is ZooKeeper as the [locker.Backend] of a Locker: its session, and the claims that were
// made.
type backend struct {
	cfg     Config
	clock   lease.Clock
	life    context.Context // done when Close begins
	end     context.CancelFunc
	group   sync.WaitGroup // for sessions that are being opened or are running
	granted atomic.Int64   // the session timeout last granted; zero before the first session

	mu struct {
		sync.Mutex
		isClosed bool
		session  *session
		opening  *openingSession
		claims   map[string]*claim // by id: those that may be in ZooKeeper
	}
}

var _ locker.Backend = (*backend)(nil)

func newBackend(cfg Config, clock lease.Clock) *backend {
	b := &backend{cfg: cfg, clock: clock}
	b.life, b.end = context.WithCancel(context.Background())
	b.mu.claims = map[string]*claim{}
	return b
}

// An openingSession is a session that is being opened, and the outcome.
type openingSession struct {
	done    chan struct{} // closed when one of the others is set
	session *session
	err     error
}

// present returns the session, and opens one if there is none. All waiters share it.
func (b *backend) present(ctx context.Context) (*session, error) {
	s, o, err := b.presentOrOpening()
	if err != nil || s != nil {
		return s, err
	}
	select {
	case <-o.done:
		return o.session, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no session yet: %w", lockstep.ErrUnavailable, ctx.Err())
	}
}

func (b *backend) presentOrOpening() (*session, *openingSession, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.isClosed:
		return nil, nil, lockstep.ErrClosed
	case b.mu.session != nil && b.mu.session.lease.Check() == nil:
		return b.mu.session, nil, nil
	case b.mu.opening == nil:
		o := &openingSession{done: make(chan struct{})}
		b.mu.opening = o
		b.group.Go(func() { b.open(o) })
	}
	return nil, b.mu.opening, nil
}

// open opens a session and serves it until it is over.
func (b *backend) open(o *openingSession) {
	s, err := connect(b.cfg, b.clock)
	if err != nil {
		b.opened(o, nil, err)
		return
	}
	ctx, cancel := context.WithTimeout(b.life, b.cfg.openWithin())
	defer cancel()
	if err := s.begin(ctx); err != nil {
		b.opened(o, nil, err)
		s.abandon(err)
		return
	}
	b.opened(o, s, nil)
	s.run()
}

// opened reports the outcome of an opening to the waiters.
func (b *backend) opened(o *openingSession, s *session, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.opening = nil
	o.session, o.err = s, err
	if err == nil {
		b.mu.session = s
		b.granted.Store(int64(s.timing.timeout))
		context.AfterFunc(b.life, func() { s.lease.End(lockstep.ErrClosed) })
	}
	close(o.done)
}

// Close implements [locker.Backend]: it ends the session.
func (b *backend) Close(ctx context.Context) error {
	b.mu.Lock()
	b.mu.isClosed = true
	b.mu.Unlock()
	b.end() // which ends the session
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.group.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done(): // it ends by itself within seconds
		return fmt.Errorf("%w: the session is still being closed", lockstep.ErrUncertain)
	}
}

// Take implements [locker.Backend].
func (b *backend) Take(ctx context.Context, c *locker.Claim) (locker.Grant, error) {
	s, err := b.present(ctx)
	if err != nil {
		return locker.Grant{}, err
	}
	k := newClaim(s, c)
	b.remember(k)
	grant, err := k.take(ctx)
	isQueued := errors.Is(err, locker.ErrQueued)
	switch {
	case err == nil || isQueued:
	case (errors.Is(err, lockstep.ErrBusy) || isRefused(err)) && k.isNowhere():
		b.forget(k)
	case isRefused(err), ctx.Err() != nil && !c.Try():
		err = fmt.Errorf("%w: %w", locker.ErrQueued, err)
	}
	return grant, err
}

// isRefused reports whether trying again is useless: the Locker does not drop such a claim.
func isRefused(err error) bool {
	return errors.Is(err, lockstep.ErrInvalid) || errors.Is(err, lockstep.ErrQuota) || errors.Is(err, lockstep.ErrUnsupported)
}

func (b *backend) remember(k *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.claims[k.ID] = k
}

func (b *backend) forget(k *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.claims, k.ID)
}

// Drop implements [locker.Backend]. A claim whose session is over is deleted through the current
// one.
func (b *backend) Drop(ctx context.Context, c *locker.Claim) error {
	b.mu.Lock()
	k := b.mu.claims[c.ID]
	b.mu.Unlock()
	if k == nil {
		return missing("there was no such claim")
	}
	err := b.drop(ctx, k)
	if err == nil || errors.Is(err, lockstep.ErrLost) {
		b.forget(k)
	}
	return err
}

func (b *backend) drop(ctx context.Context, k *claim) error {
	if k.session.isExpired() {
		return missing("ZooKeeper has ended its session")
	}
	s, err := b.present(ctx)
	if err != nil {
		return err
	}
	err = k.drop(ctx, s)
	if loss, ok := errors.AsType[*lockstep.LossError](err); ok && loss.Reason != lockstep.RecordMissing {
		return fmt.Errorf("%w: %s", lockstep.ErrUncertain, err) // the session that should have deleted it is over
	}
	return err
}
