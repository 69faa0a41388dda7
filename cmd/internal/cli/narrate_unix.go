//go:build unix

package cli

import (
	"context"
	"time"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/client"
)

// narrate reports what the claim of this run is waiting for, until stop is called.
func (r *runner) narrate(ctx context.Context) (stop func()) {
	if !r.app.narrates(r.plan.target.Verbose) {
		return func() {}
	}
	var n narrator
	began := time.Now()
	return every(ctx, func(ctx context.Context, round int) {
		var e *client.OutageError
		if l, ok := r.locker.(interface{ Outage() *client.OutageError }); ok {
			e = l.Outage()
		}
		line := n.outage(time.Since(began), e)
		if e == nil && round%inspectEvery == 0 {
			line = r.situation(ctx, &n, began)
		}
		if line != "" && ctx.Err() == nil {
			r.say("%s", line)
		}
	})
}

// situation asks who holds the lock.
func (r *runner) situation(ctx context.Context, n *narrator, began time.Time) string {
	inspector, ok := r.locker.(lockstep.Inspector)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	state, err := inspector.Inspect(ctx, r.plan.name)
	if err != nil { // narrate reports the outage itself
		return ""
	}
	report := reportState(state)
	return n.waiting(time.Since(began), r.plan.name, report, position(report.Waiters, r.plan.labels), time.Now())
}
