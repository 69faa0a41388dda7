package locker

import (
	"context"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/lease"
)

// A Lease is a lease that is being kept alive: the lease of one record, or of a session with all
// its locks. It ends once. It is safe for concurrent use.
type Lease struct {
	clock  lease.Clock
	state  *lease.State
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when nothing is running
}

// KeepLease keeps a lease alive with [lease.KeepAlive] in its own goroutine, until End or the end
// of the lease. The state must already be confirmed.
func KeepLease(clock lease.Clock, state *lease.State, renew func(context.Context) error) *Lease {
	return KeepLeaseSince(clock, state, func(ctx context.Context) (time.Duration, error) { return lease.Never, renew(ctx) })
}

// KeepLeaseSince is KeepLease using [lease.KeepAliveSince], for a backend whose confirmation
// guarantees a lease that began before the send.
func KeepLeaseSince(clock lease.Clock, state *lease.State, renew func(context.Context) (since time.Duration, err error)) *Lease {
	l := &Lease{clock: clock, state: state, ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	go func() {
		defer close(l.ended)
		l.cancel(lease.KeepAliveSince(l.ctx, clock, state, renew))
	}()
	return l
}

// Context is done when the lease is over. Its cause is a [*lockstep.LossError] or the cause passed
// to End.
func (l *Lease) Context() context.Context { return l.ctx }

// Check reads the clock: it returns nil while the lease is alive, otherwise the cause of Context.
func (l *Lease) Check() error {
	if l.ctx.Err() == nil && !l.state.Valid(l.clock.Now()) {
		l.cancel(&lockstep.LossError{Reason: lockstep.LeaseEnded})
	}
	return context.Cause(l.ctx)
}

// Remaining is the time until the lease ends unless it is renewed; zero when it is over.
func (l *Lease) Remaining() time.Duration {
	if l.Check() != nil {
		return 0
	}
	return l.state.Remaining(l.clock.Now())
}

// End stops the renewals and waits until no more will be sent. The first cause is kept.
func (l *Lease) End(cause error) {
	l.cancel(cause)
	<-l.ended
	l.state.End()
}
