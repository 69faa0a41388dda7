package client

import (
	"context"
	"runtime"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client/session"
)

// A lock is one grant. Its holder has a [handle].
type lock struct {
	client *Client
	sess   *session.Session // only its methods that are safe for concurrent use, but under client.mu
	claim  *claim
	token  lockstep.Token
	ctx    context.Context
	cancel context.CancelCauseFunc
	endsAt time.Duration // by MaxHold; zero = no bound

	over     error         // guarded by client.mu: why it is over, nil while it is held
	settled  chan struct{} // closed when its end is certain
	finalErr error         // set before settled is closed: nil = released
}

func newLock(c *Client, s *session.Session, k *claim, u session.Update) *lock {
	l := &lock{client: c, sess: s, claim: k, settled: make(chan struct{})}
	if k.cfg.Mode != lockstep.Permits { // several holders of permits have no order
		l.token = lockstep.Token(u.Token)
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// finishLocked ends the holding with this cause, unless it is over.
func (l *lock) finishLocked(cause error) {
	if l.over == nil {
		l.over = cause
		l.cancel(cause)
	}
}

// settle makes the end certain.
func (l *lock) settle(err error) {
	select {
	case <-l.settled:
	default:
		l.finalErr = err
		close(l.settled)
	}
}

func (l *lock) Name() string { return l.claim.cfg.Names[0] }

// A handle is what the holder has. The client holds the lock behind it, so that the
// runtime can tell when the holder has dropped its handle without a Release.
type handle struct{ *lock }

// handle wraps the lock for its holder. A lock that is dropped while it is held stays
// held: the runtime decides when it notices, so it cannot be a release. It is logged.
func (l *lock) handle() *handle {
	h := &handle{l}
	runtime.AddCleanup(h, func(l *lock) {
		if l.ctx.Err() == nil {
			l.client.cfg.Logger.Warn("a lock was dropped without Release and stays held", "lock", l.Name(), "token", uint64(l.token))
		}
	}, l)
	return h
}

// Owner is the public id of the session, by which listings name the holder.
func (h *handle) Owner() string { return h.sess.ID() }

func (h *handle) Names() []string          { return namesOf(h.claim) }
func (h *handle) Token() lockstep.Token    { return h.token }
func (h *handle) Context() context.Context { return h.ctx }

// Check implements [lockstep.Lock]. At the end of the lease it does not wait for the
// goroutine that watches the clock.
func (h *handle) Check() error {
	if h.ctx.Err() == nil && h.sess.Valid(h.client.cfg.Clock.Now()) {
		return nil
	}
	h.client.expire() // when the lease has ended this cancels the context, with the cause
	return context.Cause(h.ctx)
}

// Remaining implements [lockstep.Lock].
func (h *handle) Remaining() time.Duration {
	if h.ctx.Err() != nil {
		return 0
	}
	return max(h.sess.ValidUntil()-h.client.cfg.Clock.Now(), 0)
}

// Release implements [lockstep.Lock]. On a lock that was revoked it returns the loss
// and tells the service that its holder has stopped, which then hands it on.
func (h *handle) Release(ctx context.Context) error {
	ctx, done := withOwnTime(ctx)
	defer done()
	h.client.do(func(now time.Duration) {
		h.finishLocked(lockstep.ErrReleased)
		h.sess.Release(now, h.claim.seq)
	})
	err := h.awaitEnd(ctx)
	if err != nil {
		return &lockstep.OpError{Op: "release", Lock: h.Name(), Err: err}
	}
	return nil
}

// awaitEnd waits until the end of the lock is certain.
func (l *lock) awaitEnd(ctx context.Context) error {
	select {
	case <-l.settled:
	case <-ctx.Done():
	case <-l.client.life.Done(): // Close gave up: the lease ends it
	}
	select {
	case <-l.settled:
		return l.finalErr
	default:
	}
	if ctx.Err() == nil {
		return lockstep.ErrUncertain
	}
	return l.client.uncertain(ctx)
}
