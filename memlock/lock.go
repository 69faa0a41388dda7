package memlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
)

// releaseTime bounds a Release whose context is already done.
const releaseTime = 5 * time.Second

// A lock is the holder's side of a granted claim.
type lock struct {
	locker *Locker
	claim  *claim
	token  lockstep.Token
	ctx    context.Context
	cancel context.CancelCauseFunc
	freed  chan struct{} // closed when the claim has left the space

	// The space's mutex guards the fields below.
	isFreed bool
	maxHold *time.Timer // nil: no limit
}

func newLock(l *Locker, c *claim) *lock {
	k := &lock{locker: l, claim: c, token: c.token, freed: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	if c.cfg.MaxHold > 0 {
		k.maxHold = time.AfterFunc(c.cfg.MaxHold-time.Since(c.since), k.endMaxHold)
	}
	return k
}

func (k *lock) Name() string             { return k.claim.cfg.Names[0] }
func (k *lock) Names() []string          { return slices.Clone(k.claim.cfg.Names) }
func (k *lock) Token() lockstep.Token    { return k.token }
func (k *lock) Context() context.Context { return k.ctx }

func (k *lock) Check() error {
	s := k.locker.space
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapseLocked(k.claim.session)
	return context.Cause(k.ctx)
}

func (k *lock) Remaining() time.Duration {
	s := k.locker.space
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapseLocked(k.claim.session)
	if k.ctx.Err() != nil {
		return 0
	}
	return s.remainingLocked(k.claim.session)
}

// endLocked ends the lock for its holder. The first cause is kept.
func (k *lock) endLocked(cause error) {
	k.cancel(cause)
	if k.maxHold != nil {
		k.maxHold.Stop()
	}
}

func (k *lock) endMaxHold() {
	s := k.locker.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	k.endLocked(&lockstep.LossError{Reason: lockstep.MaxHoldReached})
	k.giveBackLocked()
}

// mayGiveBack reports whether a Release frees something. The Release of a revoked lock is the
// holder's acknowledgement. A lock delay after an expiry is not cut short.
func (k *lock) mayGiveBack(cause error) bool {
	if k.isFreed || errors.Is(cause, lockstep.ErrDetached) {
		return false
	}
	return k.claim.state == granted || k.claim.loss.Reason == lockstep.Revoked
}

// giveBackLocked frees the claim in the space, now or once the space can be reached.
func (k *lock) giveBackLocked() {
	if k.locker.cut != nil {
		k.locker.space.undoLaterLocked(k.locker, k.claim)
		return
	}
	k.locker.space.freeLocked(k.claim)
}

func (k *lock) Release(ctx context.Context) error {
	if err := k.release(ctx); err != nil {
		return &lockstep.OpError{Op: "release", Lock: k.Name(), Err: err}
	}
	return nil
}

func (k *lock) release(ctx context.Context) error {
	s := k.locker.space
	s.mu.Lock()
	s.lapseLocked(k.claim.session)
	k.endLocked(lockstep.ErrReleased)
	cause := context.Cause(k.ctx)
	if k.mayGiveBack(cause) {
		k.giveBackLocked()
	}
	s.mu.Unlock()
	if !errors.Is(cause, lockstep.ErrReleased) {
		return cause
	}
	if ctx.Err() != nil {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		ctx = own
	}
	select {
	case <-k.freed:
		return nil
	case <-ctx.Done():
		return lockstep.ErrUncertain
	}
}
