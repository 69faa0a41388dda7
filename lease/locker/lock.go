package locker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// A lock is one grant. It is over when its context is done, and freed when the store has confirmed
// the release or its lease has certainly run out.
type lock struct {
	locker *Locker
	claim  *Claim
	grant  Grant
	lease  *Lease
	ctx    context.Context
	cancel context.CancelCauseFunc
	freed  chan struct{} // closed at the end
	lost   error         // set before freed is closed: the record was already gone when we freed it
}

// hold makes a lock from a grant and watches over it.
func (l *Locker) hold(c *Claim, g Grant, state *lease.State) *lock {
	k := &lock{locker: l, claim: c, grant: g, lease: g.Lease, freed: make(chan struct{})}
	if k.lease == nil {
		k.lease = KeepLease(l.cfg.Clock, state, func(ctx context.Context) error { return l.renewer.Renew(ctx, c) })
	}
	k.ctx, k.cancel = context.WithCancelCause(k.lease.Context())
	l.mu.Lock()
	l.mu.locks[k] = struct{}{}
	l.mu.Unlock()
	l.do(k.watch)
	return k
}

// watch waits for the end of the lock, whatever causes it. A lost lock is also freed in the store,
// in case it is still there.
func (k *lock) watch() {
	var maxHold <-chan time.Time
	if k.claim.MaxHold > 0 {
		timer := time.NewTimer(k.claim.MaxHold)
		defer timer.Stop()
		maxHold = timer.C
	}
	select {
	case <-k.ctx.Done():
	case err := <-k.grant.Gone:
		k.cancel(err)
	case <-maxHold:
		k.cancel(&lockstep.LossError{Reason: lockstep.MaxHoldReached})
	}
	k.locker.forget(k)
	cause := context.Cause(k.ctx)
	if k.grant.Lease == nil {
		k.lease.End(cause)
	}
	if !errors.Is(cause, lockstep.ErrDetached) {
		k.lost = k.locker.drop(k.claim)
	}
	close(k.freed)
}

func (l *Locker) forget(k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.locks, k)
}

func (k *lock) Name() string             { return k.claim.Names[0] }
func (k *lock) Names() []string          { return slices.Clone(k.claim.Names) }
func (k *lock) Token() lockstep.Token    { return k.grant.Token }
func (k *lock) Context() context.Context { return k.ctx }

// Owner is the public identity that listings show for the holder.
func (k *lock) Owner() string { return k.grant.Owner }

// Check implements [lockstep.Lock].
func (k *lock) Check() error {
	if k.ctx.Err() == nil {
		k.lease.Check() // ends k.ctx with the lease
	}
	return context.Cause(k.ctx)
}

// Remaining implements [lockstep.Lock].
func (k *lock) Remaining() time.Duration {
	if k.Check() != nil {
		return 0
	}
	return k.lease.Remaining()
}

// Release implements [lockstep.Lock].
func (k *lock) Release(ctx context.Context) error {
	if err := k.release(ctx); err != nil {
		return &lockstep.OpError{Op: "release", Lock: k.Name(), Err: err}
	}
	return nil
}

func (k *lock) release(ctx context.Context) error {
	ctx, done := lease.WithOwnTime(ctx)
	defer done()
	k.Check() // a lease that has run out is a loss, not a release
	k.cancel(lockstep.ErrReleased)
	if cause := context.Cause(k.ctx); !errors.Is(cause, lockstep.ErrReleased) {
		return cause
	}
	select {
	case <-k.freed:
		return k.lost
	case <-ctx.Done():
		return lockstep.ErrUncertain
	case <-k.locker.work.Done():
		return lockstep.ErrUncertain
	}
}
