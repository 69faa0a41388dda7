package lease

import (
	"context"
	"time"
)

// Sleep waits for d, and reports whether ctx was still not done then. Zero or less is no wait.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Patience is for how long a Locker tries to reach its backend before it reports an outage, unless
// it is configured: the TTL, after which the lease is over anyway; at least 5 s, so that no
// failover is mistaken for an outage; at most 15 s, since people do not wait longer.
func Patience(ttl time.Duration) time.Duration {
	return min(max(ttl, 5*time.Second), 15*time.Second)
}

// ownTime is what a call that must do something gets when its context is already done.
const ownTime = 5 * time.Second

// WithOwnTime returns a context for a call that must do something even if ctx is done, such as a
// release: ctx, or one of 5 s with the values of ctx if that is done. The caller must call the
// returned function when the call is over.
func WithOwnTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), ownTime)
}
