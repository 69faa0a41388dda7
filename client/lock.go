package client

import (
	"context"
	"runtime"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client/session"
	"github.com/lockstep-dev/lockstep/lease"
)

// A lock is one grant. Its holder has a [handle].
type lock struct {
	client *Client
	sess   *session.Session // without client.mu, only its methods that are safe for concurrent use
	claim  *claim
	token  lockstep.Token
	ctx    context.Context
	cancel context.CancelCauseFunc
	endsAt time.Duration // by MaxHold; zero = no limit

	over     error         // guarded by client.mu: why it is over, nil while it is held
	settled  chan struct{} // closed when its outcome is certain
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

// finishLocked ends the lock with this cause, unless it is over.
func (l *lock) finishLocked(cause error) {
	if l.over == nil {
		l.over = cause
		l.cancel(cause)
	}
}

// settle records the final outcome.
func (l *lock) settle(err error) {
	select {
	case <-l.settled:
	default:
		l.finalErr = err
		close(l.settled)
	}
}

func (l *lock) Name() string { return l.claim.cfg.Names[0] }

// A handle is the holder's reference. The client keeps the lock behind it, so the runtime can
// detect that the holder has dropped its handle without a Release.
type handle struct{ *lock }

// handle wraps the lock for its holder. A lock that is dropped while held stays held, since the
// runtime may notice at any time; it is only logged.
func (l *lock) handle() *handle {
	h := &handle{l}
	runtime.AddCleanup(h, func(l *lock) {
		if l.ctx.Err() == nil {
			l.client.cfg.Logger.Warn("a lock was dropped without Release and stays held", "lock", l.Name(), "token", uint64(l.token))
		}
	}, l)
	return h
}

// Owner is the public id of the session, that listings show for the holder.
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
	h.client.expire() // cancels the context, with the cause, if the lease has ended
	return context.Cause(h.ctx)
}

// Remaining implements [lockstep.Lock].
func (h *handle) Remaining() time.Duration {
	if h.ctx.Err() != nil {
		return 0
	}
	return max(h.sess.ValidUntil()-h.client.cfg.Clock.Now(), 0)
}

// Release implements [lockstep.Lock]. On a revoked lock it returns the loss and tells the service
// that its holder has stopped, so the service passes the lock on.
func (h *handle) Release(ctx context.Context) error {
	ctx, done := lease.WithOwnTime(ctx)
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

// awaitEnd waits until the outcome of the lock is certain.
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
